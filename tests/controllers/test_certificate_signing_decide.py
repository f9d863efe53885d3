"""Decisions of the certificate signers: accepted requests, validity and contents of certificates."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError

from controller_manager.common.api.certificates import API_CLIENT, LEGACY_UNKNOWN, NODE_CLIENT, NODE_SERVING
from controller_manager.common.serving.tls import KeyPair
from controller_manager.testing.certificates import (
    CLIENT_USAGES,
    SERVER_USAGES,
    authority,
    hosts,
    key_of_kind,
    private_pem,
    request_pem,
)
from controllers.certificate_signing import SigningOptions
from controllers.certificate_signing.authority import extended_usage, key_usage, read_authority
from controllers.certificate_signing.validity import validity
from controllers.shared.certificate_requests import CHECKS, Asked, UnusableRequest, asked_for, read_request

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAR = NOW + timedelta(days=10_000)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
NODE = Asked("system:node:n1", ("system:nodes",))
SIGNER = "--cluster-signing"
SERVING = f"{SIGNER}-node-agent-serving"


def named(**names: str) -> Asked:
    """Return the identity of a node with one alternative name of each kind."""
    return replace(NODE, names={kind: (name,) for kind, name in names.items()})


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        ({}, []),
        ({"cert": "a", "key": "b"}, []),
        ({"node_agent_client_cert": "a", "node_agent_client_key": "b"}, []),
        ({"cert": "a"}, [f"{SIGNER}-cert-file and {SIGNER}-key-file must be given together"]),
        (
            {"legacy_unknown_key": "a"},
            [f"{SIGNER}-legacy-unknown-cert-file and {SIGNER}-legacy-unknown-key-file must be given together"],
        ),
        (
            {"cert": "a", "key": "b", "apiserver_client_cert": "a", "apiserver_client_key": "b"},
            [f"{SIGNER}-apiserver-client-cert-file cannot be given with {SIGNER}-cert-file"],
        ),
        (
            {"cert": "a", "node_agent_serving_key": "b"},
            [
                f"{SIGNER}-cert-file and {SIGNER}-key-file must be given together",
                f"{SERVING}-cert-file and {SERVING}-key-file must be given together",
                f"{SIGNER}-node-agent-serving-key-file cannot be given with {SIGNER}-cert-file",
            ],
        ),
    ],
)
def test_signing_flags_require_complete_pairs(files: dict[str, str], problems: list[str]) -> None:
    fields = {f"cluster_signing_{name}_file": value for name, value in files.items()}
    if problems:
        with pytest.raises(ValidationError) as caught:
            SigningOptions(**fields)
        assert caught.value.errors()[0]["msg"] == f"Value error, {'; '.join(problems)}"
    else:
        SigningOptions(**fields)


@pytest.mark.parametrize(
    ("signer", "asked", "usages", "problem"),
    [
        (NODE_CLIENT, NODE, CLIENT_USAGES, ""),
        (NODE_CLIENT, NODE, ("client auth", "digital signature"), ""),
        (
            NODE_CLIENT,
            NODE,
            ("client auth",),
            "the usages must be digital signature, client auth and optionally key enciph",
        ),
        (NODE_CLIENT, NODE, ("client auth", "key encipherment"), "the usages must be"),
        (NODE_CLIENT, NODE, (*CLIENT_USAGES, "server auth"), "the usages must be"),
        (NODE_CLIENT, NODE, (), "the usages must be"),
        (NODE_CLIENT, Asked("system:node:n1"), CLIENT_USAGES, "the organization of the subject must be system:nodes"),
        (NODE_CLIENT, Asked("system:node:n1", ("system:nodes", "system:masters")), CLIENT_USAGES, "the organization"),
        (NODE_CLIENT, Asked("n1", ("system:nodes",)), CLIENT_USAGES, "the common name must begin with system:node:"),
        (NODE_CLIENT, named(IP="1.1.1.1"), CLIENT_USAGES, "must have no IP sub"),
        (NODE_CLIENT, named(URI="a:b"), CLIENT_USAGES, "must have no URI subjectAlt"),
        (NODE_CLIENT, named(email="a@b"), CLIENT_USAGES, "must have no email subject"),
        (NODE_SERVING, NODE, SERVER_USAGES, "needs a DNS or IP subjectAltName"),
        (NODE_SERVING, named(DNS="n"), SERVER_USAGES, ""),
        (NODE_SERVING, named(IP="1.1.1.1"), SERVER_USAGES, ""),
        (NODE_SERVING, named(IP="1.1.1.1"), SERVER_USAGES[1:], "the usages"),
        (NODE_SERVING, named(IP="1.1.1.1"), CLIENT_USAGES, "the usages"),
        (
            NODE_SERVING,
            named(DNS="n", URI="a:b"),
            SERVER_USAGES,
            "must have no URI subjectAltName",
        ),
        (NODE_SERVING, Asked("n", ("system:nodes",), {"DNS": ("n",)}), SERVER_USAGES, "the common name"),
        (API_CLIENT, Asked("jane", ("dev",), {"DNS": ("x",)}), CLIENT_USAGES, ""),
        (API_CLIENT, Asked(), ("client auth",), ""),
        (API_CLIENT, Asked(), ("digital signature",), "a client certificate needs the usage client auth"),
        (
            API_CLIENT,
            Asked(),
            (*CLIENT_USAGES, "server auth"),
            "a client certificate must not have the usage server auth",
        ),
        (LEGACY_UNKNOWN, Asked(), (), ""),
        (LEGACY_UNKNOWN, Asked("x", ("dev",)), ("cert sign", "any"), ""),
        (
            LEGACY_UNKNOWN,
            Asked("x", ("dev", "system:masters")),
            ("any",),
            "no certificate is issued to members of system:masters",
        ),
        (
            API_CLIENT,
            Asked("x", ("system:masters", "dev")),
            CLIENT_USAGES,
            "no certificate is issued to members of system:masters",
        ),
        (
            NODE_SERVING,
            Asked("system:node:n1", ("system:nodes", "system:masters"), {"DNS": ("n",)}),
            SERVER_USAGES,
            "system:nodes alone",
        ),
    ],
)
def test_signer_rules_by_subject_and_usages(signer: str, asked: Asked, usages: tuple[str, ...], problem: str) -> None:
    found = CHECKS[signer](asked, usages)
    assert problem in found
    assert bool(found) is bool(problem)


@pytest.mark.parametrize(
    ("asked", "maximum", "end", "start", "lasts"),
    [
        (None, 100 * HOUR, FAR, -5 * MINUTE, 100 * HOUR - 5 * MINUTE),
        (3600, 100 * HOUR, FAR, -5 * MINUTE, HOUR),
        (8 * 3600, 100 * HOUR, FAR, -5 * MINUTE, 8 * HOUR - 5 * MINUTE),
        (8 * 3600 - 1, 100 * HOUR, FAR, -5 * MINUTE, 8 * HOUR - timedelta(seconds=1)),
        (1, 100 * HOUR, FAR, -5 * MINUTE, 10 * MINUTE),
        (900 * 3600, 100 * HOUR, FAR, -5 * MINUTE, 100 * HOUR - 5 * MINUTE),
        (3600, MINUTE, FAR, -5 * MINUTE, MINUTE),
        (None, 100 * HOUR, NOW + 2 * HOUR, -5 * MINUTE, 2 * HOUR),
    ],
)
def test_validity_is_capped_by_maximum_and_authority(
    asked: int | None, maximum: timedelta, end: datetime, start: timedelta, lasts: timedelta
) -> None:
    assert validity(NOW, asked, maximum, end) == (NOW + start, NOW + lasts)


@given(
    st.timedeltas(timedelta(), timedelta(days=30_000)).map(NOW.__add__),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.timedeltas(timedelta(seconds=1), timedelta(days=40_000)),
    st.timedeltas(timedelta(days=-400), timedelta(days=4000)),
)
def test_validity_never_exceeds_maximum_or_authority(
    now: datetime, asked: int | None, maximum: timedelta, left: timedelta
) -> None:
    end = now + left
    found = validity(now, asked, maximum, end)
    assert (found is None) == (left <= timedelta())
    if found is not None:
        assert found.end <= end
        assert found.end - now <= maximum
        assert found.start <= now - timedelta(minutes=5)
        assert found.end > found.start
        assert asked is None or found.end - now <= max(timedelta(seconds=asked), 10 * MINUTE)


# Made with openssl, because the library of the tests cannot create such requests.
WEAK = b"""\
-----BEGIN CERTIFICATE REQUEST-----
MIHqMIGVAgEAMDAxFTATBgNVBAoMDHN5c3RlbTpub2RlczEXMBUGA1UEAwwOc3lz
dGVtOm5vZGU6bjEwXDANBgkqhkiG9w0BAQEFAANLADBIAkEAvkih+q3O81nImB6q
d59pgwb/yEMDYm6x+PRU7+XftEh+coD0jTxa7tWln6TvrkuAVJ1ZqgcMWILYNnNM
sK9ljwIDAQABoAAwDQYJKoZIhvcNAQELBQADQQCGrDg2wsMUWEkxAgbET4z6ff+L
T1T7MhXxqXztEx3eEpmg0THUd7RH2QOpd/m7hl2iHq7KVCvQjthPYbTNpl4h
-----END CERTIFICATE REQUEST-----
"""
SHA1_RSA = b"""\
-----BEGIN CERTIFICATE REQUEST-----
MIIBbzCB2QIBADAwMRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxFzAVBgNVBAMMDnN5
c3RlbTpub2RlOm4xMIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCWa/Ir3Tyl
oW5wxkd2+ggH6+ZQ/0jGCIGUUzeYaxHfSWC3jciqaOzPOhz1B5JT5vxnypYss8cv
w56XulilOppNccRdytVxqwQeS/Wr6BbYDZ6bwWb1Md0HDThE6vUM1gqt/HfX0hci
AVX+640tuuVg1htC4GkKNLo3+AgaESR7xQIDAQABoAAwDQYJKoZIhvcNAQEFBQAD
gYEAKSKvE/1Wk/dlJnrmFrMAwG6IBNn60HhhvfsEcDdLT4C+3KI1lIzdRHooxeJB
2SgMZ8msP65t0Ar4SlOVGu+ppSFOWxa/clDVZK7AKz1MYRVbilCRq37UhKOBgYGv
Y+MPNClSoUqJvIV9uvLTdfeWeHp0yaCA65xYb519aPdXAEE=
-----END CERTIFICATE REQUEST-----
"""
SHA1_ECDSA = b"""\
-----BEGIN CERTIFICATE REQUEST-----
MIHqMIGSAgEAMDAxFTATBgNVBAoMDHN5c3RlbTpub2RlczEXMBUGA1UEAwwOc3lz
dGVtOm5vZGU6bjEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQq8yxPK+G1uFXw
HOw4ydE+OxrtML/S6QirpUk6ef8OIAQvS29Yv+dUXj82cvMMmPoaDk836X5imqFO
bAuNuwBEoAAwCQYHKoZIzj0EAQNIADBFAiAmSFrQ9m2BBOTpTkYdTYtUSIfT5/1i
sFZ04CmP87muRQIhAJ+8SvnNHn44vwA5ou8kf+Opzy7FStv/zdomRURnWAND
-----END CERTIFICATE REQUEST-----
"""


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: b"", "cannot be read"),
        (lambda: b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "cannot be read"),
        (lambda: authority().certificate, "cannot be read"),
        (lambda: WEAK, "has 512 bits, and at least 1024 are required"),
        (lambda: request_pem(key=key_of_kind("secp256k1")), "curve secp256k1"),
        (lambda: request_pem(key=key_of_kind("ed448")), "must be RSA, ECDSA or Ed25519"),
        (lambda: forged(), "does not match its public key"),
    ],
    ids=["empty", "garbage", "certificate", "weak", "curve", "kind", "forged"],
)
def test_unusable_request_is_refused_with_reason(make, reason: str) -> None:
    with pytest.raises(UnusableRequest, match=reason):
        read_request(make())


@pytest.mark.parametrize("pem", [SHA1_RSA, SHA1_ECDSA], ids=["rsa", "ecdsa"])
def test_sha1_request_with_valid_signature_is_accepted(pem: bytes) -> None:
    assert asked_for(read_request(pem)) == Asked("system:node:n1", ("system:nodes",))
    der = x509.load_pem_x509_csr(pem).public_bytes(Encoding.DER)
    forged = b64encode(der.replace(b"system:node:n1", b"system:node:n2"))
    with pytest.raises(UnusableRequest, match="does not match its public key"):
        read_request(b"-----BEGIN CERTIFICATE REQUEST-----\n%s\n-----END CERTIFICATE REQUEST-----\n" % forged)


def test_request_with_1024_bit_rsa_key_is_certified() -> None:
    key = issued(request_pem(key=key_of_kind("rsa-1024"))).public_key()
    assert isinstance(key, RSAPublicKey)
    assert key.key_size == 1024


def forged() -> bytes:
    """Return a request whose subject was changed after it was signed."""
    der = x509.load_pem_x509_csr(request_pem()).public_bytes(Encoding.DER)
    return x509.load_der_x509_csr(der.replace(b"system:node:n1", b"system:node:n2")).public_bytes(Encoding.PEM)


def issued(pem: bytes, usages: tuple[str, ...] = CLIENT_USAGES, ca: KeyPair | None = None) -> x509.Certificate:
    made = validity(NOW, None, 24 * HOUR, FAR)
    assert made is not None
    found = read_authority(ca or authority()).issue(read_request(pem), usages, made)
    return x509.load_pem_x509_certificate(found)


def test_certificate_contains_names_usages_and_key_identifiers() -> None:
    ca = authority()
    names = [
        *hosts("a.example", "10.0.0.1", "fd00::1"),
        x509.UniformResourceIdentifier("spiffe://a"),
        x509.RFC822Name("a@b.c"),
        x509.RegisteredID(ObjectIdentifier("1.2.3")),
    ]
    certificate = issued(request_pem(names=names), ca=ca)
    signer = x509.load_pem_x509_certificate(ca.certificate)
    assert certificate.issuer == signer.subject
    assert certificate.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    assert (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == (
        NOW - 5 * MINUTE,
        NOW + 24 * HOUR - 5 * MINUTE,
    )
    found = {type(one.value).__name__: one for one in certificate.extensions}
    assert {name: one.critical for name, one in found.items()} == {
        "KeyUsage": True,
        "ExtendedKeyUsage": False,
        "BasicConstraints": True,
        "AuthorityKeyIdentifier": False,
        "SubjectAlternativeName": False,
    }
    assert found["BasicConstraints"].value == x509.BasicConstraints(ca=False, path_length=None)
    own = signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert found["AuthorityKeyIdentifier"].value.key_identifier == own.digest
    assert list(found["SubjectAlternativeName"].value) == names[:-1]


def test_serial_numbers_are_unique() -> None:
    assert len({issued(request_pem()).serial_number for _ in range(20)}) == 20


def test_unknown_subject_attributes_are_dropped() -> None:
    """The rules do not check other attributes, so they must not identify a user."""
    user_uid = x509.NameAttribute(ObjectIdentifier("1.3.6.1.4.1.57683.2"), "another-user")
    more = [
        x509.NameAttribute(NameOID.COMMON_NAME, "last"),
        x509.NameAttribute(NameOID.COUNTRY_NAME, "NL"),
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
        user_uid,
    ]
    pem = request_pem("first", ["a", "b", "a"], more=more)
    assert asked_for(read_request(pem)).common_name == "last"
    assert issued(pem).subject.rfc4514_string() == "CN=last,O=a+O=b,C=NL"


def test_names_without_subject_are_critical() -> None:
    certificate = issued(request_pem("", [], hosts("a.example")))
    assert certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical
    assert certificate.subject.rdns == []


def test_other_requested_extensions_are_dropped() -> None:
    key = key_of_kind()
    requested = x509.BasicConstraints(ca=True, path_length=None)
    builder = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(requested, critical=True)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    assert not issued(pem).extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_key_usages_from_usage_names() -> None:
    basic = key_usage(("signing", "key agreement", "encipher only", "cert sign"))
    assert basic is not None
    assert (basic.digital_signature, basic.key_agreement, basic.encipher_only, basic.key_cert_sign) == (True,) * 4
    assert not basic.key_encipherment
    assert key_usage(("client auth",)) is None
    assert extended_usage(("digital signature",)) is None
    extended = extended_usage(("s/mime", "client auth", "email protection", "any"))
    assert extended is not None
    assert list(extended) == [
        ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.EMAIL_PROTECTION,
    ]
    with pytest.raises(UnusableRequest, match="need the usage key agreement"):
        key_usage(("decipher only",))


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("rsa-2048", "sha256"),
        ("p-224", "sha256"),
        ("p-256", "sha256"),
        ("p-384", "sha384"),
        ("p-521", "sha512"),
        ("ed25519", None),
    ],
)
def test_signature_digest_matches_strength_of_key(kind: str, digest: str | None) -> None:
    ca = authority(kind)
    certificate = issued(request_pem(), ca=ca)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.certificate))
    used = certificate.signature_hash_algorithm
    assert (used.name if used else None) == digest


def encrypted() -> bytes:
    return key_of_kind().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (lambda: KeyPair(b"", authority().key), "the first file holds no certificate in PEM"),
        (lambda: KeyPair(authority().certificate * 2, authority().key), "must hold one certificate, and holds 2"),
        (lambda: KeyPair(authority().certificate, b"x"), "the second file holds no private key in PEM"),
        (lambda: KeyPair(authority().certificate, encrypted()), "the key is encrypted"),
        (
            lambda: KeyPair(authority().certificate, authority(number=5).key),
            "the key is not the one of the certificate",
        ),
        (lambda: authority("secp256k1"), "curve secp256k1, which is not supported"),
        (lambda: authority("ed448"), "not RSA, ECDSA or Ed25519"),
        (lambda: authority(ca=False), "the certificate is not that of an authority"),
    ],
    ids=["none", "two", "no-key", "encrypted", "other", "curve", "kind", "leaf"],
)
def test_unusable_authority_is_refused_with_reason(pair, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        read_authority(pair())
    assert "PRIVATE" not in str(caught.value)


def test_keys_in_traditional_openssl_format_are_read() -> None:
    for kind in ("rsa-2048", "p-256"):
        pair = authority(kind)
        key = key_of_kind(kind)
        from cryptography.hazmat.primitives.serialization import NoEncryption

        old = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        assert old != private_pem(key)
        assert read_authority(KeyPair(pair.certificate, old)).certificate


def test_repr_of_authority_hides_the_key() -> None:
    assert "key" not in repr(read_authority(authority()))


def test_importing_options_does_not_import_cryptography(tmp_path: Path) -> None:
    import subprocess
    import sys

    modules = "certificate_signing, certificate_approving, certificate_cleaning"
    code = f"import sys; from controllers import {modules}; assert 'cryptography' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
