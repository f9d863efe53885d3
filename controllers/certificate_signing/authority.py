"""A signing CA from files that may be renewed, and the certificates that it issues."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from controller_manager.common.base.log import Logger
from controller_manager.common.serving.certificates import FilePair
from controller_manager.common.serving.tls import KeyPair

from ..shared.certificate_requests import CURVES, UnusableRequest, alternative_names
from .validity import Validity

SigningKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey

# The subject attributes that are certified, in this order. Values of each in the first group form one set (RFC 5280,
# section 4.1.2.4). Other attributes are dropped, because some grant rights, such as a user identity.
_SETS = (
    *(NameOID.COUNTRY_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME),
    *(NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS, NameOID.POSTAL_CODE),
)
_SINGLE = (NameOID.COMMON_NAME, NameOID.SERIAL_NUMBER)

_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED_USAGES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": ObjectIdentifier("2.16.840.1.113730.4.1"),
}


@dataclass(frozen=True, slots=True)
class SigningAuthority:
    """A CA certificate and its key."""

    certificate: x509.Certificate
    key: SigningKey = field(repr=False)

    @property
    def end(self) -> datetime:
        """Return the end of the CA's validity."""
        return self.certificate.not_valid_after_utc

    def issue(self, request: x509.CertificateSigningRequest, usages: Collection[str], validity: Validity) -> bytes:
        """Return the certificate (PEM) for a request. Raises UnusableRequest for invalid requests."""
        subject = subject_of(request)
        builder = x509.CertificateBuilder(
            issuer_name=self.certificate.subject,
            subject_name=subject,
            public_key=request.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=validity.start,
            not_valid_after=validity.end,
        )
        for extension, critical in (
            (key_usage(usages), True),
            (extended_usage(usages), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (self._key_identifier(), False),
            (_names(request), not subject.rdns),
        ):
            builder = builder.add_extension(extension, critical) if extension is not None else builder
        return builder.sign(self.key, _digest(self.key)).public_bytes(Encoding.PEM)

    def _key_identifier(self) -> x509.AuthorityKeyIdentifier | None:
        try:
            own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        except x509.ExtensionNotFound:
            return None
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def read_authority(pair: KeyPair) -> SigningAuthority:
    """Return the CA of a certificate and a key. Raises ValueError with the problem, without parts of the key."""
    try:
        certificates = x509.load_pem_x509_certificates(pair.certificate)
    except ValueError:
        raise ValueError("the first file holds no certificate in PEM") from None
    if len(certificates) != 1:
        raise ValueError(f"the first file must hold one certificate, and holds {len(certificates)}")
    certificate, key = certificates[0], _read_key(pair.key)
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    try:
        fits = certificate.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        constraints = None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("the certificate is broken or of an unknown kind") from None
    if not fits:
        raise ValueError("the key is not the one of the certificate")
    if constraints is not None and not constraints.ca:
        raise ValueError("the certificate is not that of an authority")
    return SigningAuthority(certificate, key)


class RenewableAuthority:
    """The present CA in two files.

    They are read on each use. If a pair is invalid, incomplete or missing, the previous one stays in use, with one log
    message. Raises OSError or ValueError if the first pair is invalid.
    """

    def __init__(self, source: FilePair, log: Logger) -> None:
        self._source = source
        self._log = log
        self._seen = source.read()
        self._authority = read_authority(self._seen)
        self._problem = ""

    def current(self) -> SigningAuthority:
        """Return the present CA."""
        try:
            pair = self._source.read()
            if pair != self._seen:
                self._seen = pair
                self._authority = read_authority(pair)
                self.report("")
                self._log.info("signs with another authority from now on", files=self._source.name)
        except OSError as error:
            self.report(error.strerror or str(error))
        except ValueError as error:
            self.report(str(error))
        return self._authority

    def report(self, problem: str) -> None:
        """Log a new problem once. An empty problem resets it."""
        if problem and problem != self._problem:
            self._log.warning("an authority cannot be used as it is", files=self._source.name, problem=problem)
        self._problem = problem


def subject_of(request: x509.CertificateSigningRequest) -> x509.Name:
    """Return the certified part of a request's subject. Raises UnusableRequest for invalid values."""
    found = request.subject.get_attributes_for_oid
    sets = [list(dict.fromkeys(found(oid))) for oid in _SETS]
    singles = [found(oid)[-1:] for oid in _SINGLE]
    return x509.Name([x509.RelativeDistinguishedName(values) for values in (*sets, *singles) if values])


def key_usage(usages: Collection[str]) -> x509.KeyUsage | None:
    """Return the key usages, if any. Raises UnusableRequest for contradictory ones."""
    meant = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
    try:
        return x509.KeyUsage(**{name: name in meant for name in _KEY_USAGES.values()}) if meant else None
    except ValueError:
        raise UnusableRequest("the usages encipher only and decipher only need the usage key agreement") from None


def extended_usage(usages: Collection[str]) -> x509.ExtendedKeyUsage | None:
    """Return the extended key usages without duplicates, if any."""
    meant = dict.fromkeys(oid for usage, oid in _EXTENDED_USAGES.items() if usage in usages)
    return x509.ExtendedKeyUsage(list(meant)) if meant else None


def _names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    names = [name for _, name in alternative_names(request)]
    if any(isinstance(name.value, IPv4Network | IPv6Network) for name in names):
        raise UnusableRequest("an IP subjectAltName must be an address, not a network")
    return x509.SubjectAlternativeName(names) if names else None


def _read_key(pem: bytes) -> SigningKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise ValueError("the key is encrypted") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("the second file holds no private key in PEM") from None
    if isinstance(key, EllipticCurvePrivateKey) and key.curve.name not in CURVES:
        raise ValueError(f"the key is on the curve {key.curve.name}, which is not supported")
    if not isinstance(key, SigningKey):
        raise ValueError("the key is not RSA, ECDSA or Ed25519")
    return key


def _digest(key: SigningKey) -> hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None:
    if isinstance(key, Ed25519PrivateKey):
        return None
    if isinstance(key, EllipticCurvePrivateKey) and key.key_size > 256:
        return hashes.SHA384() if key.key_size == 384 else hashes.SHA512()
    return hashes.SHA256()
