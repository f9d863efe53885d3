"""What the status of a Pod may say, and what it may not take back."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import IMMUTABLE, ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import record
from apiserver_stub.kinds.rules.formats import address, one_per_family
from apiserver_stub.kinds.schema import Tree

_STATUS: FieldPath = (None, "status")
_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def change_status(new: Tree, old: Tree, found: ErrorList) -> None:
    """An update through the status subresource."""
    status, before = new.get("status") or {}, old.get("status") or {}
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName") and (why := names.subdomain(nominated)):
        found.invalid((_STATUS, "nominatedNodeName"), nominated, why)
    if before.get("qosClass") and status.get("qosClass") != before["qosClass"]:
        found.invalid((_STATUS, "qosClass"), status.get("qosClass", ""), IMMUTABLE)
    _of_host(status, found)
    _ENDS(status, _STATUS, found)
    spec = old.get("spec") or {}
    for name in _LISTS:
        _no_revival(name, status, before, spec, found)
    _claims(status, spec, found)


def _addresses(entries: Any, at: FieldPath, found: ErrorList) -> None:
    texts = [entry.get("ip", "") for entry in entries]
    seen: set[str] = set()
    for index, text in enumerate(texts):
        if why := address(text):
            found.invalid((at, index), text, why)
        if text in seen:
            found.duplicate((at, index), entries[index])
        seen.add(text)
    one_per_family(texts, at, found)


def _of_host(status: Tree, found: ErrorList) -> None:
    entries = status.get("hostIPs")
    if entries and entries[0].get("ip", "") != status.get("hostIP", ""):
        at = (((_STATUS, "hostIPs"), 0), "ip")
        found.invalid(at, entries[0].get("ip", ""), "must be equal to `hostIP`")


def _conditions(conditions: Any, at: FieldPath, found: ErrorList) -> None:
    for index, condition in enumerate(conditions):
        if why := names.qualified(condition.get("type", "")):
            found.invalid(((at, index), "type"), condition.get("type", ""), why)


_ENDS = record({"podIPs": _addresses, "hostIPs": _addresses, "conditions": _conditions})


def _no_revival(name: str, status: Tree, before: Tree, spec: Tree, found: ErrorList) -> None:
    """A container that ended for good does not run again."""
    policy = "Never" if name.startswith("ephemeral") else spec.get("restartPolicy")
    if policy == "Always":
        return
    running = {s.get("name") for s in status.get(name) or () if "terminated" not in (s.get("state") or {})}
    restarting = {
        container.get("name")
        for containers in ("containers", "initContainers")
        for container in spec.get(containers) or ()
        if "restartPolicy" in container
    }
    for index, entry in enumerate(before.get(name) or ()):
        ended = (entry.get("state") or {}).get("terminated")
        if ended is None or (ended.get("exitCode") and policy == "OnFailure"):
            continue
        if entry.get("name") in running - restarting:
            why = "a container that ended does not run again"
            found.forbidden((((_STATUS, name), index), "state"), why)


def _claims(status: Tree, spec: Tree, found: ErrorList) -> None:
    known = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    for index, entry in enumerate(status.get("resourceClaimStatuses") or ()):
        if entry.get("name") not in known:
            at = (((_STATUS, "resourceClaimStatuses"), index), "name")
            found.invalid(at, entry.get("name", ""), "must match the name of an entry in `spec.resourceClaims`")
