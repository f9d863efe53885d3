"""TLS contexts and certificates: a small CA, certificates for servers and clients, and server contexts."""

import ipaddress
import ssl
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.files import memory_file, write_atomically
from controller_manager.common.base.log import get_logger

_PATIENCE = 3  # further reads, each of limited size, before the connection of a rejected client is closed
# OpenSSL's reasons for rejecting clients that speak TLS, and so understand alerts. Others are disconnected at once.
_REPORTED = frozenset({"CERTIFICATE_VERIFY_FAILED", "NO_SHARED_CIPHER", "UNSUPPORTED_PROTOCOL"})
_BACKDATE = timedelta(hours=1)  # clocks of clients may lag behind
_CIPHERS = (
    "ECDHE+AESGCM:ECDHE+CHACHA20"  # forward secrecy and authenticated encryption; every TLS 1.2 client supports one
)
_NO_PASSWORD = ""  # an encrypted key is rejected; without a password OpenSSL would ask on the terminal
_EXTENDED_USE = {True: ExtendedKeyUsageOID.CLIENT_AUTH, False: ExtendedKeyUsageOID.SERVER_AUTH}


class AlertingSSLObject(ssl.SSLObject):
    """An SSL object that sends its alert when a handshake fails, RFC 8446, section 6.2.

    Event loops drop pending data when a handshake fails, so that clients only see a closed connection. This class first
    pretends to need more input, which makes the loop send the alert. The client reads it and disconnects. Otherwise the
    connection is closed after some more input or at the handshake timeout.
    """

    _refusal: ssl.SSLError | None = None
    _patience = _PATIENCE

    def do_handshake(self) -> None:
        """See `ssl.SSLObject`."""
        if self._refusal is None:
            self._step()
            return
        self._patience -= 1
        if self._patience < 0:
            raise self._refusal
        raise ssl.SSLWantReadError

    def _step(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason not in _REPORTED:
                raise
            self._refusal = error
            get_logger("serving").debug("rejected client in TLS handshake", problem=str(error))
            raise ssl.SSLWantReadError from error


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate (or chain) and its private key, both in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    def write(self, cert_file: Path, key_file: Path) -> None:
        """Write both files, the key first and readable only by its owner."""
        write_atomically(key_file, self.key)
        write_atomically(cert_file, self.certificate, 0o644)


class TLSPolicy(msgspec.Struct, frozen=True):
    """The TLS settings of a server: the minimum version, and the TLS 1.2 cipher suites in OpenSSL's notation; empty
    means those with forward secrecy and authenticated encryption.
    """

    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: str = ""


DEFAULT_POLICY = TLSPolicy()


def make_ca(common_name: str, days: int = 3650) -> KeyPair:
    """Return a new CA with an ECDSA P-256 key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = _builder(name, name, key.public_key(), key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def check_authority(pair: KeyPair) -> None:
    """Raise ValueError unless `pair` is a CA certificate and its key."""
    certificate, key = x509.load_pem_x509_certificate(pair.certificate), _load_key(pair.key)
    if certificate.public_key() != key.public_key():
        raise ValueError("the key is not the one of the certificate")
    try:
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    if not is_authority:
        raise ValueError("the certificate is not that of an authority")


def issue(
    ca: KeyPair,
    common_name: str,
    organizations: Sequence[str] = (),
    hosts: Sequence[str] = (),
    *,
    client: bool = False,
    days: float = 365,
) -> KeyPair:
    """Return a certificate signed by `ca`: for a client (common name and organizations), or for a server at `hosts`."""
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
        builder = builder.add_extension(
            x509.SubjectAlternativeName([alternative_name(one) for one in hosts]), critical=False
        )
    return _pair(builder.sign(ca_key, hashes.SHA256()), key)


def context_of(pair: KeyPair, client_authorities: bytes = b"", policy: TLSPolicy = DEFAULT_POLICY) -> ssl.SSLContext:
    """Return the TLS context of a server with `pair`. Client certificates are optional, and verified with the CAs
    (PEM).

    A client certificate that cannot be verified ends the handshake: Python cannot continue and report it later.
    Session tickets are off, since a resumed session does not reveal the CA of the client certificate. Raises
    ssl.SSLError if `pair` is not a certificate and its key, ValueError for invalid CA certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = AlertingSSLObject
    _agree(context, policy)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    with memory_file(pair.certificate) as cert_file, memory_file(pair.key) as key_file:
        context.load_cert_chain(cert_file, key_file, password=_NO_PASSWORD)
    if client_authorities:
        context.load_verify_locations(cadata=_as_der(client_authorities))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust intermediate CAs without their root
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _agree(context: ssl.SSLContext, policy: TLSPolicy) -> None:
    """Set versions and cipher suites. OpenSSL needs CBC suites and security level 0 for the versions of RFC 8996."""
    old = policy.minimum_version < ssl.TLSVersion.TLSv1_2
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = policy.minimum_version
    usual = "DEFAULT" if old else _CIPHERS
    context.set_ciphers((policy.ciphers or usual) + (":@SECLEVEL=0" if old else ""))


def available_ciphers() -> frozenset[str]:
    """Return the cipher suites of this OpenSSL, with OpenSSL's names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL")
    return frozenset(one["name"] for one in context.get_ciphers())


def _as_der(bundle: bytes) -> bytes:
    """Return all certificates of a bundle as DER; `ssl` rejects non-ASCII comments in PEM."""
    der = serialization.Encoding.DER
    try:
        return b"".join(one.public_bytes(der) for one in x509.load_pem_x509_certificates(bundle))
    except ValueError as error:
        raise ValueError("the client CA bundle is not PEM certificates") from error


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    days: float,
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


def alternative_name(host: str) -> x509.GeneralName:
    """Return a host name or IP address as subject alternative name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(certificate.public_bytes(pem), private)


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("the key of the certificate authority is encrypted or of an unknown kind") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("the key of the certificate authority is neither ECDSA nor RSA")
    return key
