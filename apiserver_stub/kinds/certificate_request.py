"""Who may write what of a CertificateSigningRequest: approvers its verdict, signers the rest of its status; pure."""

from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts, get_in, put_in

REQUESTS = "certificatesigningrequests.certificates.k8s.io"
_VERDICTS = ("Approved", "Denied")


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
