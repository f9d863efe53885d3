"""Validation of PodCertificateRequests (KEP-4317): the request and the signer's status."""

from binascii import a2b_base64
from collections.abc import Iterator
from datetime import datetime, timedelta
from email.utils import parseaddr
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from cryptography.x509 import (
    Certificate,
    DNSName,
    ExtensionNotFound,
    InvalidVersion,
    RFC822Name,
    SubjectAlternativeName,
    load_der_x509_certificate,
    load_der_x509_csr,
)

from apiserver_stub.common.error_list import NO_VALUE, ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.certificates import signer_name
from apiserver_stub.kinds.rules.combine import KindRules, both, fixed, form, if_any, need, record, within
from apiserver_stub.kinds.rules.conditions import CONDITIONS
from apiserver_stub.kinds.rules.metadata import fit
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.pem import blocks
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now

_LONGEST_UID = 128
_LARGEST_KEY, _LARGEST_CHAIN = 10 * 1024, 100 * 1024  # bytes
_LARGEST_ANNOTATIONS = 256 * 1024  # bytes
_SHORTEST_LIFE, _LONGEST_LIFE, _LONGEST_LIFE_OF_PLATFORM = 3600, 91 * 86400, 86400  # seconds
_SKEW, _MARGIN = timedelta(minutes=5), timedelta(minutes=10)
_CURVES, _RSA_BITS = ("secp256r1", "secp384r1", "secp521r1"), (3072, 4096)
_FINAL = ("Issued", "Denied", "Failed")
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, InvalidVersion)
_SPEC, _STATUS = place("spec"), place("status")
_CSR, _KEY, _PROOF = (place(f"spec.{name}") for name in ("stubPKCS10Request", "pkixPublicKey", "proofOfPossession"))
_CHAIN, _BEFORE, _AFTER, _REFRESH = (
    place(f"status.{name}") for name in ("certificateChain", "notBefore", "notAfter", "beginRefreshAt")
)
_UNKNOWN_KEY = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"


def _uid(value: Any, at: FieldPath, errors: ErrorList) -> None:
    if not value:
        errors.invalid(at, value, "must not be empty")
    elif len(value) > _LONGEST_UID:
        errors.too_long(at, _LONGEST_UID)


def _annotations(values: Any, at: FieldPath, errors: ErrorList) -> None:
    for name in values or ():
        if why := names.domain_prefixed(name.lower()):
            errors.malformed(at, name.lower(), why)
    if not fit(values or {}):
        errors.too_long(at, _LARGEST_ANNOTATIONS)


def _life(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    seconds, domain = spec.get("maxExpirationSeconds"), (spec.get("signerName") or "").partition("/")[0]
    of_platform = domain == PLATFORM_DOMAIN or domain.endswith(f".{PLATFORM_DOMAIN}")
    longest = _LONGEST_LIFE_OF_PLATFORM if of_platform else _LONGEST_LIFE
    if seconds is not None and not _SHORTEST_LIFE <= seconds <= longest:
        errors.invalid((at, "maxExpirationSeconds"), seconds, f"must be in the range [{_SHORTEST_LIFE}, {longest}]")


def _key(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the key: a PKCS #10 request, or a public key with a signature over the pod's UID."""
    request, key, proof = (_binary(spec, name) for name in ("stubPKCS10Request", "pkixPublicKey", "proofOfPossession"))
    if request and not key and not proof:
        _key_in_request(request, errors)
    elif key and proof and not request:
        _plain_key(key, proof, (spec.get("podUID") or "").encode(), errors)
    else:
        why = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        errors.invalid(at, NO_VALUE, why)


def _binary(tree: Tree, name: str) -> bytes:
    return a2b_base64(tree.get(name) or "")


def _key_in_request(data: bytes, errors: ErrorList) -> None:
    if len(data) > _LARGEST_KEY:
        errors.too_long(_CSR, _LARGEST_KEY)
        return
    try:
        request = load_der_x509_csr(data)
        request.subject  # noqa: B018 - is read only now, and may be broken
        key = request.public_key()
    except _UNREADABLE:
        errors.invalid(_CSR, NO_VALUE, "must be a valid PKCS#10 CSR")
        return
    if problem := _key_problem(key):
        errors.invalid(_CSR, *problem)
    elif not _is_signed(request):
        errors.invalid(_CSR, NO_VALUE, "invalid signature")


def _is_signed(request: Any) -> bool:
    try:
        return bool(request.is_signature_valid)
    except _UNREADABLE:
        return False


def _plain_key(data: bytes, proof: bytes, uid: bytes, errors: ErrorList) -> None:
    for at, value in ((_KEY, data), (_PROOF, proof)):
        if len(value) > _LARGEST_KEY:
            errors.too_long(at, _LARGEST_KEY)
            return
    try:
        key = load_der_public_key(data)
    except _UNREADABLE:
        errors.invalid(_KEY, NO_VALUE, "must be a valid PKIX-serialized public key")
        return
    if problem := _key_problem(key):
        errors.invalid(_KEY, *problem)
    elif not _is_proven(key, proof, uid):
        errors.invalid(_PROOF, NO_VALUE, "could not verify proof-of-possession signature")


def _key_problem(key: Any) -> tuple[Any, str] | None:
    match key:
        case Ed25519PublicKey():
            return None
        case EllipticCurvePublicKey(curve=curve):
            why = "elliptic public keys must use curve P256, P384, or P521"
            return None if curve.name in _CURVES else (f"curve {curve.name}", why)
        case RSAPublicKey(key_size=bits):
            why = "RSA keys must have modulus size 3072 or 4096"
            return None if bits in _RSA_BITS else (f"{bits}-bit modulus", why)
        case _:
            return NO_VALUE, _UNKNOWN_KEY


def _is_proven(key: Any, proof: bytes, uid: bytes) -> bool:
    try:
        match key:
            case Ed25519PublicKey():
                key.verify(proof, uid)
            case EllipticCurvePublicKey():
                key.verify(proof, uid, ECDSA(SHA256()))
            case _:
                key.verify(proof, uid, PSS(MGF1(SHA256()), PSS.AUTO), SHA256())
    except (InvalidSignature, *_UNREADABLE):
        return False
    return True


def _status(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check that the status is set once: one final condition, and a certificate if that is `Issued`."""
    status, before = new.get("status") or {}, old.get("status") or {}
    conditions = status.get("conditions") or []
    _check_conditions(conditions, errors)
    if errors.causes:
        return
    outcome = next((c["type"] for c in conditions), "")
    if before.get("conditions"):
        if status != before:
            errors.invalid(_STATUS, NO_VALUE, "immutable after PodCertificateRequest is issued, denied, or failed")
    elif outcome == "Issued" and len((status.get("certificateChain") or "").encode()) > _LARGEST_CHAIN:
        errors.too_long(_CHAIN, _LARGEST_CHAIN)
    elif outcome == "Issued":
        for at, value, why in _issued(status, new.get("spec") or {}):
            errors.invalid(at, value, why) if why else errors.required(at, value)
    elif outcome:
        if any(value for name, value in status.items() if name != "conditions"):
            why = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
            errors.invalid(_STATUS, NO_VALUE, why)
    elif status != before:
        why = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
        errors.invalid(_STATUS, NO_VALUE, why)


def _check_conditions(conditions: list[Tree], errors: ErrorList) -> None:
    at: FieldPath = (_STATUS, "conditions")
    known = 0
    for index, condition in enumerate(conditions):
        kind, status = condition.get("type") or "", condition.get("status") or ""
        here: FieldPath = (at, f".[{index}]")  # Kubernetes' form of this path
        if kind not in _FINAL:
            errors.unsupported((here, "type"), kind, _FINAL)
            continue
        known += 1
        if known > 1:
            why = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            errors.invalid((here, "type"), kind, why)
        if status != "True":
            errors.unsupported((here, "status"), status, ("True",))
    CONDITIONS(conditions, at, errors)


Problem = tuple[FieldPath, Any, str]
"""A path, a value and an error message. Without a message, the value is missing and required."""


def _issued(status: Tree, spec: Tree) -> Iterator[Problem]:
    """Yield errors in the certificate and the reported times: the first one, or all of one type."""
    chain = status.get("certificateChain") or ""
    certificates, why = _certificates(chain.encode())
    if not certificates:
        yield _CHAIN, chain, why
        return
    leaf = certificates[0]
    problems = list(_names(leaf)) or list(_times(status, leaf, spec))
    if not _is_for(leaf, spec):
        problems = [(_CHAIN, chain, "leaf certificate was not issued to the requested public key")]
    yield from problems
    if not problems and why:
        yield _CHAIN, chain, why


def _certificates(chain: bytes) -> tuple[list[Certificate], str]:
    """Return the certificates up to the first invalid block, and the error of that block."""
    found: list[Certificate] = []
    for block in blocks(chain):
        if block.type != "CERTIFICATE":
            return found, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
        try:
            found.append(load_der_x509_certificate(block.content))
        except _UNREADABLE:
            which = "intermediate" if found else "leaf"
            return found, f"{which} certificate does not parse as valid X.509"
    return found, "" if found else "issued certificate chain must contain at least one certificate"


def _names(leaf: Certificate) -> Iterator[Problem]:
    try:
        found = leaf.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return
    for name in found.get_values_for_type(DNSName):
        if not name:
            yield _CHAIN, name, "leaf certificate should not contain empty DNSName"
        if ".." in name:
            yield _CHAIN, name, "leaf certificate's DNSName should not contain '..'"
        if name.startswith(".") or name.endswith("."):
            yield _CHAIN, name, "leaf certificate's DNSName should not start or end with '.'"
    for address in found.get_values_for_type(RFC822Name):
        local, at, domain = parseaddr(address)[1].partition("@")
        if not (local and at and domain):
            yield _CHAIN, address, "leaf certificate should not contain invalid EmailAddress"


def _is_for(leaf: Certificate, spec: Tree) -> bool:
    encoding = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    request, plain = _binary(spec, "stubPKCS10Request"), _binary(spec, "pkixPublicKey")
    try:
        key = load_der_x509_csr(request).public_key() if request else load_der_public_key(plain)
        return key.public_bytes(*encoding) == leaf.public_key().public_bytes(*encoding)
    except _UNREADABLE:
        return False


def _times(status: Tree, leaf: Certificate, spec: Tree) -> Iterator[Problem]:
    """Yield the first error in the times, or all that are missing."""
    times = [status.get(name) for name in ("notBefore", "notAfter", "beginRefreshAt")]
    if not all(times):
        required = "must be present and consistent with the issued certificate"
        refresh = "must be present and in the range [notbefore+10min, notafter-10min]"
        for at, value, why in zip((_BEFORE, _AFTER, _REFRESH), times, (required, required, refresh), strict=True):
            if not value:
                yield at, why, ""
        return
    before, after, refresh_at = (parse_time(str(value)) for value in times)
    if problem := _time_problem(before, after, refresh_at, leaf, spec.get("maxExpirationSeconds") or 0):
        yield problem


def _time_problem(
    before: datetime, after: datetime, refresh: datetime, leaf: Certificate, longest: int
) -> Problem | None:
    first, last = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    life = last - first
    checks: tuple[tuple[bool, FieldPath, Any, str], ...] = (
        (before != first, _BEFORE, before, "must be set to the NotBefore time encoded in the leaf certificate"),
        (
            abs(before - utc_now()) > _SKEW, _BEFORE, before,
            "must be set to within 5 minutes of kube-apiserver's current time",
        ),
        (after != last, _AFTER, after, "must be set to the NotAfter time encoded in the leaf certificate"),
        (life < timedelta(seconds=_SHORTEST_LIFE), _CHAIN, life, "leaf certificate lifetime must be >= 1 hour"),
        (
            life > timedelta(seconds=longest), _CHAIN, life,
            f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})",
        ),
        (refresh < before + _MARGIN, _REFRESH, refresh, "must be at least 10 minutes after status.notBefore"),
        (refresh > after - _MARGIN, _REFRESH, refresh, "must be at least 10 minutes before status.notAfter"),
    )  # fmt: skip
    return next(((at, value, why) for wrong, at, value, why in checks if wrong), None)


_BODY = record({
    "signerName": if_any(form(signer_name)), "unverifiedUserAnnotations": _annotations,
    "podName": form(names.subdomain), "podUID": _uid,
    "serviceAccountName": form(names.subdomain), "serviceAccountUID": _uid,
    "nodeName": form(names.subdomain), "nodeUID": _uid,
}, need("signerName"))  # fmt: skip
RULES = {
    "certificates.k8s.io/v1beta1/PodCertificateRequest": KindRules(
        change=fixed("spec"), subresources={"status": _status}, by_schema=False,
        on_create=within("spec", both(_BODY, _life, _key)),
    ),
}  # fmt: skip
