"""Certificate requests (PKCS #10, RFC 2986), and the rules that the built-in signers apply to them.

The rules work on plain values. Only the functions that read a request import `cryptography`, when they are called.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from controller_manager.common.api.certificates import API_CLIENT, LEGACY_UNKNOWN, NODE_CLIENT, NODE_SERVING
from controller_manager.common.api.platform import ADMIN_GROUP, NODE_PREFIX, NODES_GROUP

if TYPE_CHECKING:
    from cryptography.x509 import CertificateSigningRequest, GeneralName

SMALLEST_RSA = 1024  # bits; kube-controller-manager accepts no shorter keys
CURVES = ("secp224r1", "secp256r1", "secp384r1", "secp521r1")

_SIGNATURE, _ENCIPHERMENT = "digital signature", "key encipherment"
_CLIENT, _SERVER = "client auth", "server auth"
DNS, EMAIL, IP, URI = "DNS", "email", "IP", "URI"


class UnusableRequest(ValueError):
    """No certificate can ever be issued for this request. The message says why."""


class Asked(msgspec.Struct, frozen=True):
    """The subject and the alternative names (texts by kind) that a request asks for."""

    common_name: str = ""
    organizations: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = {}


Check = Callable[[Asked, Collection[str]], str]
"""Returns the problem with a request and its usages, or an empty string."""


# Signer             subject                      names              usages
# API client         not O=system:masters         any                client auth, optionally signature and encipherment
# node client        O=system:nodes only,         none               signature, client auth, optionally encipherment
# node serving       CN=system:node:...           DNS or IP, only    signature, server auth, optionally encipherment
# legacy unknown     not O=system:masters         any                any


def api_client_problem(asked: Asked, usages: Collection[str]) -> str:
    """Return the problem with a client certificate request that is not from a node, or an empty string."""
    if problem := admin_problem(asked, usages):
        return problem
    others = sorted(set(usages) - {_CLIENT, _SIGNATURE, _ENCIPHERMENT})
    if others:
        return f"a client certificate must not have the usage {others[0]}"
    return "" if _CLIENT in usages else f"a client certificate needs the usage {_CLIENT}"


def node_client_problem(asked: Asked, usages: Collection[str]) -> str:
    """Return the problem with a request for a node's client certificate (kubelet to API server), or an empty string."""
    present = next((kind for kind in (DNS, EMAIL, IP, URI) if asked.names.get(kind)), "")
    names = f"a node's client certificate must have no {present} subjectAltName" if present else ""
    return _subject_problem(asked) or names or _usages_problem(usages, _CLIENT)


def node_serving_problem(asked: Asked, usages: Collection[str]) -> str:
    """Return the problem with a request for a node's serving certificate, or an empty string."""
    present = next((kind for kind in (EMAIL, URI) if asked.names.get(kind)), "")
    names = f"a node's serving certificate must have no {present} subjectAltName" if present else ""
    if not asked.names.get(DNS) and not asked.names.get(IP):
        names = "a node's serving certificate needs a DNS or IP subjectAltName"
    return _subject_problem(asked) or names or _usages_problem(usages, _SERVER)


def admin_problem(asked: Asked, usages: Collection[str]) -> str:
    """Return the problem that applies to every requester: no signer certifies a member of the admin group."""
    return f"no certificate is issued to members of {ADMIN_GROUP}" if ADMIN_GROUP in asked.organizations else ""


CHECKS: Mapping[str, Check] = {
    API_CLIENT: api_client_problem,
    NODE_CLIENT: node_client_problem,
    NODE_SERVING: node_serving_problem,
    LEGACY_UNKNOWN: admin_problem,
}
"""The rule of each signer."""


def _subject_problem(asked: Asked) -> str:
    if asked.organizations != (NODES_GROUP,):
        return f"the organization of the subject must be {NODES_GROUP} alone"
    return "" if asked.common_name.startswith(NODE_PREFIX) else f"the common name must begin with {NODE_PREFIX}"


def _usages_problem(usages: Collection[str], purpose: str) -> str:
    """Return the problem with the usages. Encipherment is optional, because keys such as elliptic ones cannot
    encipher.
    """
    if set(usages) - {_ENCIPHERMENT} == {_SIGNATURE, purpose}:
        return ""
    return f"the usages must be {_SIGNATURE}, {purpose} and optionally {_ENCIPHERMENT}"


def read_request(pem: bytes) -> "CertificateSigningRequest":
    """Return the parsed request after checking its key and its signature. Raises UnusableRequest."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    unsupported = x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType
    try:
        request = x509.load_pem_x509_csr(pem)
        _check_key(request)
        _check_signature(request)
        request.subject, request.extensions  # noqa: B018 - parsed on access, and may be invalid
    except UnusableRequest:
        raise
    except (ValueError, TypeError, UnsupportedAlgorithm, *unsupported) as error:
        raise UnusableRequest(f"the request cannot be read: {_short(error)}") from error
    return request


def asked_for(request: "CertificateSigningRequest") -> Asked:
    """Return the subject and the names of a request as plain values. The last of several common names counts."""
    from cryptography.x509.oid import NameOID

    common = [str(one.value) for one in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    organizations = request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    names: dict[str, list[str]] = {}
    for kind, name in alternative_names(request):
        names.setdefault(kind, []).append(str(name.value))
    by_kind = {kind: tuple(found) for kind, found in names.items()}
    return Asked(common[-1] if common else "", tuple(str(one.value) for one in organizations), by_kind)


def alternative_names(request: "CertificateSigningRequest") -> list[tuple[str, "GeneralName"]]:
    """Return the alternative names with their kinds. Names of other kinds are ignored."""
    from cryptography import x509

    kinds: dict[type, str] = {
        x509.DNSName: DNS,
        x509.RFC822Name: EMAIL,
        x509.IPAddress: IP,
        x509.UniformResourceIdentifier: URI,
    }
    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [(kinds[type(name)], name) for name in found if type(name) in kinds]


def _check_key(request: "CertificateSigningRequest") -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    match request.public_key():
        case RSAPublicKey(key_size=bits) if bits < SMALLEST_RSA:
            raise UnusableRequest(f"the RSA key has {bits} bits, and at least {SMALLEST_RSA} are required")
        case EllipticCurvePublicKey(curve=curve) if curve.name not in CURVES:
            raise UnusableRequest(f"the curve {curve.name} is not supported; use one of {', '.join(CURVES)}")
        case RSAPublicKey() | EllipticCurvePublicKey() | Ed25519PublicKey():
            return
        case _:
            raise UnusableRequest("the key must be RSA, ECDSA or Ed25519")


def _check_signature(request: "CertificateSigningRequest") -> None:
    digest = request.signature_hash_algorithm.name if request.signature_hash_algorithm else ""
    if digest == "md5":
        raise UnusableRequest("the request is signed with MD5, which is insecure; use SHA-256")
    if not (_is_signed_with_sha1(request) if digest == "sha1" else request.is_signature_valid):
        raise UnusableRequest("the signature of the request does not match its public key")


def _is_signed_with_sha1(request: "CertificateSigningRequest") -> bool:
    """Return whether the SHA-1 signature of the request is valid.

    Old tools still use SHA-1. It suffices to prove possession of the key, but the library does not verify it for us.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import SHA1

    key, signed = request.public_key(), (request.signature, request.tbs_certrequest_bytes)
    try:
        match key:
            case RSAPublicKey():
                key.verify(*signed, PKCS1v15(), SHA1())  # noqa: S303
            case EllipticCurvePublicKey():
                key.verify(*signed, ECDSA(SHA1()))  # noqa: S303
            case _:
                return False
    except InvalidSignature:
        return False
    return True


def _short(error: Exception) -> str:
    """Return the first sentence of the message of an error, or the name of its type."""
    return str(error).partition("\n")[0].partition(". ")[0][:200] or type(error).__name__
