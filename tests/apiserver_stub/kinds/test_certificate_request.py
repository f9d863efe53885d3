"""Which certificate requests are accepted, as recorded from kube-apiserver 1.36."""

from base64 import b64encode
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa
from cryptography.hazmat.primitives.serialization import Encoding

from apiserver_stub.kinds.strategies import certificate_requests as certificate_request
from controller_manager.testing.certificates import key_of_kind, request_pem

DER = x509.load_pem_x509_csr(request_pem()).public_bytes(Encoding.DER)
TYPE = "PEM block type must be CERTIFICATE REQUEST"
UNREADABLE, FOREIGN = "can be read", "the signature is not that of the key"


def armoured(der: bytes, kind: str = "CERTIFICATE REQUEST", head: str = "") -> bytes:
    text = b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{head}{lines}\n-----END {kind}-----\n".encode()


def flipped(place: int) -> bytes:
    return DER[:place] + bytes([DER[place] ^ 1]) + DER[place:][1:]


def signed_with(kind: str, digest: hashes.HashAlgorithm | None = None) -> bytes:
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    return builder.sign(key_of_kind(kind), digest).public_bytes(Encoding.PEM)


def with_dsa_key() -> bytes:
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    return builder.sign(dsa.generate_private_key(1024), hashes.SHA256()).public_bytes(Encoding.PEM)


GOOD, BROKEN = armoured(DER), b"-----BEGIN CERTIFICATE REQUEST-----\n!!!\n-----END CERTIFICATE REQUEST-----\n"
# Made with openssl: the library of the tests cannot create such requests.
SHA1_RSA = b"""\
-----BEGIN CERTIFICATE REQUEST-----
MIIBTjCBuAIBADAPMQ0wCwYDVQQDDARzaGExMIGfMA0GCSqGSIb3DQEBAQUAA4GN
ADCBiQKBgQDQCN1hK/2Tz9anrm6N3HeJzo+sOGpi65W0Hxp0TlTG9YudPlR440xB
exbARsEav7YGeX7RMcdiJTAO7+eALl2PihhU+Rx0mJWxpsM82UQf0QOe74emTbun
TQlqJwjm6WhILnkWiEXtmqgDFDXetOwRFTav3z/CgNoq/7/l+GRVyQIDAQABoAAw
DQYJKoZIhvcNAQEFBQADgYEAUfOYXQxRtlLp3ahfYnUKaS+XCiO60QwW1UekZXOJ
lIO/BNLZ1bq9ik56c4Rvfz5HQ8PSMoafAenY4G+PsiY4gyY0tHlxUo+aMnJmnKbn
4SbgsthiQq71/w/EQZUjrSc9Wu/+Mx08afOEQ93zJZoasdlMoTwsZfcB4ZOtxMrV
nfE=
-----END CERTIFICATE REQUEST-----
"""
SHA1_ECDSA = b"""\
-----BEGIN CERTIFICATE REQUEST-----
MIHIMHECAQAwDzENMAsGA1UEAwwEc2hhMTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABOnvat3hxL+DncI8J1zJ1IvAkGwdzUByW/723NmxTm5Y3rskKu0UWhxVj23j
CZcvOGs9vzzleho+n83D7pxlpvOgADAJBgcqhkjOPQQBA0gAMEUCIGnQd+dM5G0R
w4Us+8CoEQowGw4DUKjBCrME1hvhrrS4AiEAwxa8SbiMSEAiMrQq6YC0EQSHu6d8
RPgS9CDLlA1ks1E=
-----END CERTIFICATE REQUEST-----
"""
TAKEN: dict[str, Callable[[], bytes]] = {
    "alone": lambda: GOOD,
    "text before": lambda: b"hi there\n" + GOOD,
    "text after": lambda: GOOD + b"trailing",
    "another after it": lambda: GOOD + armoured(flipped(-1)),
    "after one that is no base64": lambda: BROKEN + GOOD,
    "after one that has no end": lambda: BROKEN[:40] + GOOD,
    "headers": lambda: armoured(DER, head="A: b\nC: d\n\n"),
    "headers without an empty line": lambda: armoured(DER, head="A: b\n"),
    "no last line end": lambda: GOOD.rstrip(),
    "line ends of Windows": lambda: GOOD.replace(b"\n", b"\r\n"),
    "one long line": lambda: BROKEN.replace(b"!!!", b64encode(DER)),
    "blanks within": lambda: BROKEN.replace(b"!!!", b64encode(DER).replace(b"A", b"A \t")),
    "RSA 2048": lambda: signed_with("rsa-2048", hashes.SHA512()),
    "RSA 1024": lambda: signed_with("rsa-1024", hashes.SHA256()),
    "P-224": lambda: signed_with("p-224", hashes.SHA256()),
    "P-521": lambda: signed_with("p-521", hashes.SHA384()),
    "Ed25519": lambda: signed_with("ed25519"),
}
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", TYPE),
    "rubbish": (lambda: b"hello", TYPE),
    "no PEM": (lambda: DER, TYPE),
    "no base64": (lambda: BROKEN, TYPE),
    "a certificate": (lambda: armoured(DER, "CERTIFICATE"), TYPE),
    "an older name": (lambda: armoured(DER, "NEW CERTIFICATE REQUEST"), TYPE),
    "something else before it": (lambda: armoured(DER, "CERTIFICATE") + GOOD, TYPE),
    "indented": (lambda: GOOD.replace(b"-----B", b"  -----B").replace(b"-----E", b"  -----E"), TYPE),
    "another end": (lambda: GOOD.replace(b"END CERTIFICATE REQUEST", b"END CERTIFICATE"), TYPE),
    "no request in it": (lambda: armoured(b"rubbish"), UNREADABLE),
    "an empty block": (lambda: BROKEN.replace(b"!!!\n", b""), UNREADABLE),
    "more behind the request": (lambda: armoured(DER + b"abc"), UNREADABLE),
    "a torn one": (lambda: armoured(DER[:-5]), UNREADABLE),
    "another signature": (lambda: armoured(flipped(-1)), FOREIGN),
    "another subject": (lambda: armoured(flipped(DER.index(b"system:node:"))), FOREIGN),
    "secp256k1": (lambda: signed_with("secp256k1", hashes.SHA256()), "unsupported elliptic curve"),
    "Ed448": (lambda: signed_with("ed448"), "the key must be"),
    "DSA": (with_dsa_key, "the key must be"),
    "SHA-3": (lambda: signed_with("rsa-2048", hashes.SHA3_256()), "made with sha3-256"),
}


@pytest.mark.parametrize("case", TAKEN)
def test_valid_request_is_accepted(case: str) -> None:
    assert isinstance(certificate_request.read(TAKEN[case]()), x509.CertificateSigningRequest)


@pytest.mark.parametrize("case", REFUSED)
def test_unusable_request_is_rejected(case: str) -> None:
    make, why = REFUSED[case]
    with pytest.raises(ValueError, match=why):
        certificate_request.read(make())


@pytest.mark.parametrize("pem", [SHA1_RSA, SHA1_ECDSA])
def test_sha1_request_of_old_tools_is_accepted(pem: bytes) -> None:
    der = x509.load_pem_x509_csr(pem).public_bytes(Encoding.DER)
    assert certificate_request.read(pem).public_bytes(Encoding.DER) == der
    with pytest.raises(ValueError, match=FOREIGN):
        certificate_request.read(armoured(der.replace(b"sha1", b"sha2")))
