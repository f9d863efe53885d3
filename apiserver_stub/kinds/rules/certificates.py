"""Validation of CertificateSigningRequests and of their approval."""

from binascii import a2b_base64
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import load_pem_x509_certificates

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    ChangeRule,
    KindRules,
    at_least,
    both,
    changes,
    distinct,
    each,
    fixed,
    form,
    need,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.strategies import certificate_requests as certificate_request
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.certificates import LEGACY_UNKNOWN
from controller_manager.common.api.tree import Tree

_SHORTEST_LIFE = 600
_LONGEST_SIGNER = 571
_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip
_SIGNER_RULE = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
_DECISIONS = ("Approved", "Denied")
_FINAL = (*_DECISIONS, "Failed")
_BEGIN = b"-----BEGIN CERTIFICATE-----"
_CONDITIONS = place("status.conditions")


def signer_name(name: str) -> str:
    """Check a signer name: a domain, a slash and a path."""
    if len(name) > _LONGEST_SIGNER:
        return f"must be no more than {_LONGEST_SIGNER} characters"
    domain, slash, path = name.partition("/")
    if not slash or "/" in path or "." not in domain:
        return _SIGNER_RULE
    return names.subdomain(domain) or (names.subdomain(path) and f"{_SIGNER_RULE}: {names.subdomain(path)}")


def _not_legacy(name: Any, at: FieldPath, errors: ErrorList) -> None:
    """Reject the legacy-unknown signer in new v1 requests. Stored requests of earlier versions may keep it."""
    if name == LEGACY_UNKNOWN:
        errors.invalid(at, name, "the legacy signerName is not allowed via this API version")


def _request(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that `request` is a PEM-encoded certificate request. It is immutable, so only new objects are checked."""
    text = spec.get("request") or ""
    try:
        certificate_request.read(a2b_base64(text))
    except ValueError as error:
        errors.invalid((at, "request"), text, str(error))


def _certificate(text: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that the text has only PEM certificates."""
    data = a2b_base64(text)
    try:
        count = len(load_pem_x509_certificates(data))
    except (ValueError, UnsupportedAlgorithm):
        count = 0
    if count == 0 or data.count(_BEGIN) != count or data.count(b"-----BEGIN ") != count:
        errors.invalid(at, "<certificate data>", "must be CERTIFICATE blocks in PEM")


_SPEC = record({
    "signerName": form(signer_name), "usages": both(each(one_of(*_USAGES)), distinct(empties=True)),
    "expirationSeconds": at_least(
        _SHORTEST_LIFE,
        f"may not specify a duration less than {_SHORTEST_LIFE} seconds ({_SHORTEST_LIFE // 60} minutes)",
    ),
}, need("signerName", "usages"))  # fmt: skip


def _condition(condition: Any, at: FieldPath, errors: ErrorList) -> None:
    kind, status = condition.get("type", ""), condition.get("status", "")
    if not kind:
        errors.required((at, "type"))
    if kind in _FINAL and status and status != "True":
        errors.unsupported((at, "status"), status, ("True",))
    elif not status:
        errors.required((at, "status"))
    elif status not in ("True", "False", "Unknown"):
        errors.unsupported((at, "status"), status, ("True", "False", "Unknown"))


def _conditions(conditions: Any, at: FieldPath, errors: ErrorList) -> None:
    each(_condition)(conditions, at, errors)
    distinct(lambda condition: condition.get("type"), "type")(conditions, at, errors)
    if set(_DECISIONS) <= {condition.get("type") for condition in conditions}:
        errors.invalid(at, [c.get("type") for c in conditions], "Approved and Denied conditions are mutually exclusive")


def _kept(*types: str) -> ChangeRule:
    """Return a rule that conditions of these types are never removed."""

    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        within("status.conditions", _conditions)(new, None, errors)
        now, before = (_types(tree) for tree in (new, old))
        for kind in types:
            if kind in before and kind not in now:
                errors.forbidden(_CONDITIONS, f'updates may not remove a condition of type "{kind}"')

    return change


def _types(tree: Tree) -> list[Any]:
    return [condition.get("type") for condition in get_in(tree, ("status", "conditions")) or ()]


def _status(new: Tree, old: Tree, errors: ErrorList) -> None:
    now, before = (_types(tree) for tree in (new, old))
    for kind in _DECISIONS:
        if kind in now and kind not in before:
            errors.forbidden(_CONDITIONS, f'updates may not add a condition of type "{kind}"')
    issued = get_in(old, ("status", "certificate"))
    given = get_in(new, ("status", "certificate"))
    if given == issued:
        return
    if given:
        _certificate(given, place("status.certificate"), errors)
    if issued:
        errors.forbidden(place("status.certificate"), "may not change once set")


RULES = {
    "certificates.k8s.io/v1/CertificateSigningRequest": KindRules(
        change=fixed("spec"), name=names.path_segment, spec=_SPEC,
        subresources={"status": changes(_kept(*_FINAL), _status), "approval": _kept(*_FINAL)},
        on_create=within("spec", both(_request, record({"signerName": _not_legacy}))),
    ),
}  # fmt: skip
