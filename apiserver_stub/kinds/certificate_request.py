"""Who may write what of a CertificateSigningRequest: approvers its verdict, signers the rest of its status; pure."""

from collections.abc import Iterator

from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts, get_in, put_in
from controller_manager.api.errors import Cause

REQUESTS = "certificatesigningrequests.certificates.k8s.io"
_VERDICTS = ("Approved", "Denied")
_LASTING = (*_VERDICTS, "Failed")
_FIELD = "status.conditions"


def request_born(request: Tree) -> None:
    """Nobody has judged a new request."""
    request["status"] = {}


def request_changed(new: Tree, old: Tree, part: str) -> None:
    """What was asked for stays; who writes the status leaves verdicts as they are."""
    if not part:
        new["spec"] = old.get("spec", {})
    elif part == "status":
        before = {c.get("type"): c for _, c in dicts(get_in(old, ("status", "conditions"))) if c["type"] in _VERDICTS}
        conditions = [before.get(c.get("type"), c) for _, c in dicts(get_in(new, ("status", "conditions")))]
        put_in(new, ("status", "conditions"), conditions or None)


def dated(conditions: list[Tree], before: list[Tree], now: str) -> list[Tree]:
    """Conditions with the times they lack: of their update, and of the change of their status."""
    since = {(c.get("type"), c.get("status")): c.get("lastTransitionTime") for c in before}
    found = []
    for condition in conditions:
        changed = since.get((condition.get("type"), condition.get("status"))) or now
        found.append({"lastUpdateTime": now, "lastTransitionTime": changed, **condition})
    return found


def check_verdict(new: Tree, old: Tree) -> Iterator[Cause]:
    """All problems of a change through `approval`."""
    yield from _check_conditions(new, old)


def check_status(new: Tree, old: Tree) -> Iterator[Cause]:
    """All problems of a change through `status`."""
    yield from _check_conditions(new, old)
    added = _types(new) - _types(old)
    for name in _VERDICTS:
        if name in added:
            yield _forbidden(_FIELD, f'updates may not add a condition of type "{name}"')
    issued, certificate = (get_in(tree, ("status", "certificate")) for tree in (old, new))
    if issued and certificate != issued:
        yield _forbidden("status.certificate", "updates may not modify existing certificate content")


def _check_conditions(new: Tree, old: Tree) -> Iterator[Cause]:
    seen: set[str] = set()
    for i, condition in dicts(get_in(new, ("status", "conditions"))):
        name, status = condition.get("type", ""), condition.get("status", "")
        field = f"{_FIELD}[{i}]"
        if not name:
            yield Cause(reason="FieldValueRequired", message="Required value", field=f"{field}.type")
        elif name in seen:
            yield Cause(reason="FieldValueDuplicate", message=f'Duplicate value: "{name}"', field=f"{field}.type")
        seen.add(name)
        allowed = ("True",) if name in _LASTING else ("True", "False", "Unknown")
        if status not in allowed:
            listed = ", ".join(f'"{word}"' for word in allowed)
            message = f'Unsupported value: "{status}": supported values: {listed}'
            yield Cause(reason="FieldValueNotSupported", message=message, field=f"{field}.status")
    if set(_VERDICTS) <= seen:
        yield _forbidden(_FIELD, "Approved and Denied conditions are mutually exclusive")
    for name in _LASTING:
        if name in _types(old) - seen:
            yield _forbidden(_FIELD, f'updates may not remove a condition of type "{name}"')


def _types(request: Tree) -> set[str]:
    return {c.get("type", "") for _, c in dicts(get_in(request, ("status", "conditions")))}


def _forbidden(field: str, why: str) -> Cause:
    return Cause(reason="FieldValueForbidden", message=f"Forbidden: {why}", field=field)
