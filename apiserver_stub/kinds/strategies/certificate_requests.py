"""CertificateSigningRequests: parse the request (PKCS #10, RFC 2986, in PEM) and decide which fields a write may
change.

Approvers write the approval conditions, signers the rest of the status.
"""

from functools import partial

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.x509 import (
    CertificateSigningRequest,
    InvalidVersion,
    load_der_x509_csr,
)

from apiserver_stub.kinds.values.pem import blocks
from apiserver_stub.kinds.values.trees import dicts, get_in, put_in
from controller_manager.common.api.tree import Tree

_TYPE = "CERTIFICATE REQUEST"
_CURVES = ("secp224r1", "secp256r1", "secp384r1", "secp521r1")
_DIGESTS = ("sha1", "sha256", "sha384", "sha512")
_SMALLEST_RSA = 1024
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    InvalidVersion,
)


def read(pem: bytes) -> CertificateSigningRequest:
    """Return the request in the first PEM block. Raises `ValueError` with the reason if no certificate can be issued
    for it.
    """
    block = next(blocks(pem), None)
    if block is None or block.type != _TYPE:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = load_der_x509_csr(block.content)
        request.subject  # noqa: B018 - is read only now, and may be broken
        why = _key_problem(request) or _signature_problem(request)
    except _UNREADABLE:
        why = "the block holds no certificate request (PKCS #10) that can be read"
    if why:
        raise ValueError(why)
    return request


def _key_problem(request: CertificateSigningRequest) -> str:
    match request.public_key():
        case RSAPublicKey(key_size=bits) if bits < _SMALLEST_RSA:
            return f"an RSA key of {bits} bits is insecure"
        case EllipticCurvePublicKey(curve=curve) if curve.name not in _CURVES:
            return "unsupported elliptic curve"
        case RSAPublicKey() | EllipticCurvePublicKey() | Ed25519PublicKey():
            return ""
        case _:
            return "the signature cannot be verified: the key must be RSA, ECDSA or Ed25519"


def _signature_problem(request: CertificateSigningRequest) -> str:
    digest = request.signature_hash_algorithm
    if digest and digest.name not in _DIGESTS:
        return f"the signature cannot be verified: it is made with {digest.name}"
    valid = _is_signed_with_sha1(request) if digest and digest.name == "sha1" else request.is_signature_valid
    return "" if valid else "the signature is not that of the key in the request"


def _is_signed_with_sha1(request: CertificateSigningRequest) -> bool:
    """Return whether the SHA-1 signature is valid. Old tools still use SHA-1, and the library does not verify it
    itself.
    """
    key = request.public_key()
    match key:
        case RSAPublicKey():
            verify = partial(key.verify, padding=PKCS1v15(), algorithm=SHA1())  # noqa: S303
        case EllipticCurvePublicKey():
            verify = partial(key.verify, signature_algorithm=ECDSA(SHA1()))  # noqa: S303
        case _:
            return False
    try:
        verify(request.signature, data=request.tbs_certrequest_bytes)
    except InvalidSignature:
        return False
    return True


REQUESTS = "certificatesigningrequests.certificates.k8s.io"
_VERDICTS = ("Approved", "Denied")


def request_on_create(request: Tree) -> None:
    """Set an empty status: a new request is neither approved nor denied."""
    request["status"] = {}


def request_on_update(new: Tree, old: Tree, subresource: str) -> None:
    """Keep the spec. A write of the status also keeps the approval conditions."""
    if not subresource:
        new["spec"] = old.get("spec", {})
    elif subresource == "status":
        before = {c.get("type"): c for _, c in dicts(get_in(old, ("status", "conditions"))) if c["type"] in _VERDICTS}
        conditions = [before.get(c.get("type"), c) for _, c in dicts(get_in(new, ("status", "conditions")))]
        put_in(new, ("status", "conditions"), conditions or None)


def dated(conditions: list[Tree], before: list[Tree], now: str) -> list[Tree]:
    """Return the conditions with missing `lastUpdateTime` and `lastTransitionTime` set."""
    since = {(c.get("type"), c.get("status")): c.get("lastTransitionTime") for c in before}
    found = []
    for condition in conditions:
        changed = since.get((condition.get("type"), condition.get("status"))) or now
        given = {name: value for name, value in condition.items() if value is not None}
        found.append({"lastUpdateTime": now, "lastTransitionTime": changed, **given})
    return found
