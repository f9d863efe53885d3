"""Certificates and TLS contexts: a small certificate authority, leaves for servers and clients, self-signed pairs."""

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller_manager.base.clock import utc_now
from controller_manager.serving.files import write_atomically

_BACKDATE = timedelta(hours=1)  # clocks of clients may lag behind
_RENEW_BEFORE = timedelta(days=7)
_EXTENDED_USE = {True: ExtendedKeyUsageOID.CLIENT_AUTH, False: ExtendedKeyUsageOID.SERVER_AUTH}


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (or chain) and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, cert_file: Path, key_file: Path) -> None:
        """Both files, the key first and readable by its owner only."""
        write_atomically(key_file, self.key)
        write_atomically(cert_file, self.certificate, 0o644)


def make_ca(common_name: str, days: int = 3650) -> Pair:
    """A certificate authority with an ECDSA P-256 key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = _builder(name, name, key.public_key(), key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    ca: Pair,
    common_name: str,
    organizations: Sequence[str] = (),
    hosts: Sequence[str] = (),
    *,
    client: bool = False,
    days: int = 365,
) -> Pair:
    """A leaf signed by `ca`: for a client (identity: common name and organizations), or for a server at `hosts`."""
    authority = x509.load_pem_x509_certificate(ca.certificate)
    ca_key = _load_key(ca.key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    builder = _builder(x509.Name(subject), authority.subject, key.public_key(), ca_key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([_EXTENDED_USE[client]]), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
    return _pair(builder.sign(ca_key, hashes.SHA256()), key)


def self_signed(cert_dir: Path, name: str, hosts: Sequence[str]) -> tuple[Path, Path]:
    """The files `name`.crt and `name`.key in `cert_dir`, made anew unless what is there is valid for `hosts`.

    The certificate file also holds the throw-away authority that signed it, so that a client can pin it.
    """
    cert_file, key_file = cert_dir / f"{name}.crt", cert_dir / f"{name}.key"
    if not _usable(cert_file, key_file, hosts):
        _self_signed_pair(name, hosts).write(cert_file, key_file)
    return cert_file, key_file


def server_context(cert_file: Path, key_file: Path, client_authorities: bytes = b"") -> ssl.SSLContext:
    """TLS 1.2 or newer for a server; client certificates are optional, and verified against authorities (PEM).

    Raises OSError or ssl.SSLError for files that are missing or do not fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(cert_file, key_file)
    if client_authorities:
        context.load_verify_locations(cadata=client_authorities.decode("ascii"))
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def passing_context(name: str, hosts: Sequence[str], client_authorities: bytes = b"") -> ssl.SSLContext:
    """Like `server_context`, with a self-signed pair that is kept nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        cert_file, key_file = self_signed(Path(folder), name, hosts)
        return server_context(cert_file, key_file, client_authorities)


def _self_signed_pair(name: str, hosts: Sequence[str]) -> Pair:
    ca = make_ca(f"{name}-ca", days=365)
    leaf = issue(ca, name, hosts=hosts)
    return Pair(leaf.certificate + ca.certificate, leaf.key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: int,
) -> x509.CertificateBuilder:
    now = utc_now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem), private)


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the certificate authority is not an elliptic curve key")
    return key


def _usable(cert_file: Path, key_file: Path, hosts: Sequence[str]) -> bool:
    """Whether the pair can be read, fits together, lasts a while and names every host."""
    try:
        certificate = x509.load_pem_x509_certificate(cert_file.read_bytes())
        key = _load_key(key_file.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return (
        key.public_key() == certificate.public_key()
        and certificate.not_valid_after_utc - _RENEW_BEFORE > utc_now()
        and all(_host(one) in names for one in hosts)
    )
