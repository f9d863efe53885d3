"""Whether a write fits in a resource quota, and what is used afterwards: the usual plug-in ResourceQuota; pure.

| the quota, as its status says                             | a write it is meant for                              |
|-----------------------------------------------------------|------------------------------------------------------|
| limits nothing the object counts for                      | passes                                               |
| limits what a container of the pod does not say           | is refused (cpu and memory only)                     |
| limits what has not been counted yet                      | is refused until the controller has counted          |
| would be exceeded by what the write adds                  | is refused                                           |
| holds it                                                  | is added to what is used, before it is made          |

What a write takes away is counted by the controller.
"""

from collections.abc import Mapping

from apiserver_stub.admission.chain import AdmissionRequest
from apiserver_stub.admission.quota_usage import Usage, in_scope, is_counted, is_terminating, unsaid, usage
from apiserver_stub.call import Tree
from apiserver_stub.kinds.trees import get_in
from controller_manager.api.errors import forbidden
from controller_manager.api.quantity import Quantity, add, parse

QUOTAS = "resourcequotas"
_NOT_COUNTED = frozenset({"events", "events.events.k8s.io"})
_MAY_GROW = frozenset({"services", "persistentvolumeclaims"})


def concerns(request: AdmissionRequest) -> bool:
    """Whether quotas have a say in a write at all."""
    name, part = request.kind.name, request.subresource
    if not request.namespace or name in _NOT_COUNTED or request.kind.storage in _NOT_COUNTED:
        return False
    if request.operation == "create":
        return not part
    if request.operation != "update" or request.old is None:
        return False
    if name == "pods":
        return part == "resize" or (not part and is_terminating(request.tree) != is_terminating(request.old))
    return name in _MAY_GROW and not part


def charged(quota: Tree, request: AdmissionRequest) -> Mapping[str, str] | None:
    """What is used of a quota once the write is made; None if that does not change. Raises `Forbidden`."""
    kind, tree = request.kind, request.tree
    hard = get_in(quota, ("status", "hard")) or {}
    names = [name for name in hard if is_counted(kind, name)]
    if not names or not in_scope(kind, tree, quota.get("spec") or {}):
        return None
    quota_name, used = quota["metadata"]["name"], get_in(quota, ("status", "used")) or {}
    if missing := unsaid(kind, tree, names):
        raise _refused(request, f"failed quota: {quota_name}: every container must say {'; '.join(missing)}")
    if unknown := sorted(name for name in names if name not in used):
        raise _refused(request, f"status unknown for quota: {quota_name}, resources: {','.join(unknown)}")
    added = {name: amount for name, amount in _added(quota, request).items() if name in hard}
    after = {name: add(parse(used[name]), amount) for name, amount in added.items()}
    if over := sorted(name for name, amount in after.items() if amount.number > parse(hard[name]).number):
        requested = {name: str(added[name]) for name in over}
        told = ((word, _listed(over, of)) for word, of in (("requested", requested), ("used", used), ("limited", hard)))
        raise _refused(request, f"exceeded quota: {quota_name}, {', '.join(f'{word}: {what}' for word, what in told)}")
    return {**used, **{name: str(amount) for name, amount in after.items()}} if after else None


def _added(quota: Tree, request: AdmissionRequest) -> Usage:
    """What the write counts for beyond what its object did before."""
    kind, old = request.kind, request.old
    new = usage(kind, request.tree)
    counted = old is not None and in_scope(kind, old, quota.get("spec") or {})
    before = usage(kind, old) if counted and old is not None else {}
    grown = {name: _less(amount, before.get(name)) for name, amount in new.items()}
    return {name: amount for name, amount in grown.items() if amount.number > 0}


def _less(amount: Quantity, before: Quantity | None) -> Quantity:
    return amount if before is None else amount._replace(number=amount.number - before.number)


def _listed(names: list[str], of: Mapping[str, str]) -> str:
    return ",".join(f"{name}={of[name]}" for name in names)


def _refused(request: AdmissionRequest, why: str) -> Exception:
    return forbidden(request.kind.group, request.kind.plural, request.name, why)
