"""Builders of certificate authorities and signing requests for tests."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from controller_manager.common.api.certificates import NODE_CLIENT, CertificateSigningRequest, RequestSpec
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.base.clock import utc_now
from controller_manager.common.serving.tls import KeyPair

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey

CLIENT_USAGES = ("digital signature", "key encipherment", "client auth")
SERVER_USAGES = ("digital signature", "key encipherment", "server auth")
NODE_GROUP = ("system:nodes",)

_MAKERS: dict[str, Callable[[], Key]] = {
    "rsa-1024": lambda: rsa.generate_private_key(65537, 1024),  # noqa: S505 - weak on purpose
    "rsa-2048": lambda: rsa.generate_private_key(65537, 2048),
    "rsa-4096": lambda: rsa.generate_private_key(65537, 4096),
    "p-224": lambda: ec.generate_private_key(ec.SECP224R1()),
    "p-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "p-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "p-521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "ed448": ed448.Ed448PrivateKey.generate,
}


_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def key_of_kind(kind: str = "p-256", number: int = 0) -> Key:
    """Return a private key, cached by the arguments because generating one is slow."""
    return _made(kind, number)


@cache
def _made(kind: str, _: int) -> Key:
    return _MAKERS[kind]()


def authority(
    kind: str = "p-256", *, number: int = 0, end: datetime | None = None, ca: bool = True, name: str = "cluster"
) -> KeyPair:
    """Return a self-signed authority, valid from a day ago for a year, or until `end`."""
    key, now = key_of_kind(kind, number), utc_now()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(min(now, end or now) - timedelta(days=1))
        .not_valid_after(end or now + timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(_SIGNS, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return KeyPair(builder.sign(key, _digest(key)).public_bytes(Encoding.PEM), private_pem(key))


def write_authority(folder: Path, pair: KeyPair) -> tuple[str, str]:
    """Write the pair to files in a folder; return the flags that use it for all signers."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    pair.write(certificate, key)
    return f"--cluster-signing-cert-file={certificate}", f"--cluster-signing-key-file={key}"


def private_pem(key: Key) -> bytes:
    """Return the key as PEM (PKCS #8)."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def request_pem(
    common_name: str = "system:node:n1",
    organizations: Iterable[str] = NODE_GROUP,
    names: Iterable[x509.GeneralName] = (),
    *,
    key: Key | None = None,
    more: Iterable[x509.NameAttribute[str]] = (),
    digest: hashes.SHA256 | hashes.SHA384 | None = None,
) -> bytes:
    """Return a request (PKCS #10) for that subject, with `more` attributes and these alternative names."""
    key = key or key_of_kind()
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
    subject += [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    builder = x509.CertificateSigningRequestBuilder(x509.Name([*subject, *more]))
    if named := list(names):
        builder = builder.add_extension(x509.SubjectAlternativeName(named), critical=False)
    return builder.sign(key, digest or _digest(key)).public_bytes(Encoding.PEM)


def hosts(*names: str) -> list[x509.GeneralName]:
    """Return DNS names and IP addresses as alternative names."""
    return [x509.IPAddress(ip_address(one)) if one[0].isdigit() or ":" in one else x509.DNSName(one) for one in names]


def signing_request(
    name: str,
    pem: bytes | None = None,
    *,
    signer: str = NODE_CLIENT,
    usages: Sequence[str] = CLIENT_USAGES,
    seconds: int | None = None,
) -> CertificateSigningRequest:
    """Return a CertificateSigningRequest, by default of a node for its client certificate."""
    spec = RequestSpec(
        request=pem or request_pem(), signer_name=signer, usages=tuple(usages), expiration_seconds=seconds
    )
    return CertificateSigningRequest(metadata=ObjectMeta(name=name), spec=spec)


def _digest(key: Key) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey) else hashes.SHA256()
