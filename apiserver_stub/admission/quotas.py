"""The plug-in ResourceQuota: what a write adds is noted in the quotas of its namespace before it is made.

| objects                  | count for                                                                    |
|--------------------------|------------------------------------------------------------------------------|
| all                      | `count/RESOURCE.GROUP`; some of the oldest kinds for their plural alone too  |
| pods that have not ended | `pods`, and what they request and are limited to                             |
| services                 | `services`, `services.loadbalancers`, `services.nodeports`                   |
| claims                   | `persistentvolumeclaims`, `requests.storage`, both of their storage class too |
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import orjson

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.defaults_pod import total
from apiserver_stub.kinds.pod_life import quality_of_service
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.trees import dicts, get_in, put_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.errors import NotFound, forbidden
from controller_manager.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.api.quantity import Quantity, add, parse

Usage = Mapping[str, Quantity]

_ONE, _NONE = parse("1"), parse("0")
_REQUESTS, _LIMITS = "requests.", "limits."
_PAGES = ("hugepages-", "requests.hugepages-")
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = frozenset({"pods", *(f"{of}{name}" for name in _PLAIN for of in ("", _REQUESTS, _LIMITS))})
_OF_SERVICES = frozenset({"services", "services.loadbalancers", "services.nodeports"})
_OF_CLAIMS = ("persistentvolumeclaims", "requests.storage")
_OF_CLASS = f".storageclass.storage.{GROUP_DOMAIN}/"
_CLASS_ANNOTATION = f"volume.beta.{PLATFORM_DOMAIN}/storage-class"
_OLDEST = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets"})
_UNDER_NAMES = frozenset({"cpu", "memory"})  # that every container must say when a quota counts them


def usage(kind: ResourceInfo, tree: Tree) -> Usage:
    """Return what an object counts for."""
    counted = {f"count/{kind.name}": _ONE}
    measure = _MEASURES.get(kind.name)
    if measure is not None:
        return {**counted, **measure(tree)}
    return {**counted, kind.name: _ONE} if kind.name in _OLDEST else counted


def is_counted(kind: ResourceInfo, name: str) -> bool:
    """Return whether objects of a kind count for a resource of a quota."""
    if name == f"count/{kind.name}":
        return True
    match kind.name:
        case "pods":
            return name in _OF_PODS or name.startswith(_PAGES) or (name.startswith(_REQUESTS) and _is_extended(name))
        case "services":
            return name in _OF_SERVICES
        case "persistentvolumeclaims":
            return name in _OF_CLAIMS or name.endswith(tuple(_OF_CLASS + each for each in _OF_CLAIMS))
    return name == kind.name and name in _OLDEST


def unsaid(kind: ResourceInfo, tree: Tree, names: Sequence[str]) -> list[str]:
    """Return those of the resources that the containers of a pod do not say, as `cpu for: a,b`; a pod that says what
    it needs as a whole need not.
    """
    spec = tree.get("spec") or {}
    if kind.name != "pods" or get_in(spec, ("resources", "requests")) or get_in(spec, ("resources", "limits")):
        return []
    found = []
    for name in sorted(names):
        field, _, bare = name.rpartition(".")
        if bare in _UNDER_NAMES:
            path = ("resources", field or "requests", bare)
            containers = (*spec.get("containers", ()), *spec.get("initContainers", ()))
            silent = sorted({each["name"] for each in containers if get_in(each, path) is None})
            found += [f"{name} for: {','.join(silent)}"] if silent else []
    return found


def in_scope(kind: ResourceInfo, tree: Tree, spec: Tree) -> bool:
    """Return whether an object is in all the scopes of a quota with that spec."""
    scopes: list[Tree] = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += get_in(spec, ("scopeSelector", "matchExpressions")) or ()
    return all(_is_in(kind, tree, scope) for scope in scopes)


def _is_in(kind: ResourceInfo, tree: Tree, scope: Tree) -> bool:
    spec = tree.get("spec") or {}
    match kind.name, scope.get("scopeName"):
        case "pods", "Terminating":
            return is_terminating(tree)
        case "pods", "NotTerminating":
            return not is_terminating(tree)
        case "pods", "BestEffort":
            return quality_of_service(spec) == "BestEffort"
        case "pods", "NotBestEffort":
            return quality_of_service(spec) != "BestEffort"
        case "pods", "PriorityClass":
            return _selects(scope, {spec.get("priorityClassName") or ""} - {""})
        case "pods", "CrossNamespacePodAffinity":
            return any(term.get("namespaces") or "namespaceSelector" in term for term in _affinity_terms(spec))
        case "persistentvolumeclaims", "VolumeAttributesClass":
            return _selects(scope, _attributes_classes(tree))
    return False


def is_terminating(pod: Tree) -> bool:
    """Return whether a pod ends by itself."""
    return get_in(pod, ("spec", "activeDeadlineSeconds")) is not None


def _selects(scope: Tree, names: set[str]) -> bool:
    values = set(scope.get("values") or ())
    match scope.get("operator"):
        case "Exists":
            return bool(names)
        case "DoesNotExist":
            return not names
        case "In":
            return bool(names & values)
    return not names or bool(names - values)


def _affinity_terms(spec: Tree) -> Iterator[Tree]:
    for sort in ("podAffinity", "podAntiAffinity"):
        said = get_in(spec, ("affinity", sort)) or {}
        yield from said.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for _, weighted in dicts(said.get("preferredDuringSchedulingIgnoredDuringExecution")):
            yield weighted.get("podAffinityTerm") or {}


def _attributes_classes(claim: Tree) -> set[str]:
    paths = (
        ("spec", "volumeAttributesClassName"),
        ("status", "currentVolumeAttributesClassName"),
        ("status", "modifyVolumeStatus", "targetVolumeAttributesClassName"),
    )
    return {get_in(claim, path) or "" for path in paths} - {""}


def _is_extended(name: str) -> bool:
    return "/" in name and f"{PLATFORM_DOMAIN}/" not in name


def _pod(pod: Tree) -> Usage:
    spec = pod.get("spec") or {}
    if get_in(pod, ("status", "phase")) in ("Succeeded", "Failed"):
        return {}
    counted = {"pods": _ONE}
    for name, amount in _amounts(spec, "requests").items():
        if name in _PLAIN or name.startswith("hugepages-"):
            counted[name] = counted[_REQUESTS + name] = amount
        elif _is_extended(name):
            counted[_REQUESTS + name] = amount
    for name, amount in _amounts(spec, "limits").items():
        if name in _PLAIN:
            counted[_LIMITS + name] = amount
    return counted


def _amounts(spec: Tree, field: str) -> Usage:
    """Return what a pod asks for or is limited to, with what it takes to run it."""
    said: dict[str, Any] = {**total(spec, field), **(get_in(spec, ("resources", field)) or {})}
    found = {name: parse(text) for name, text in said.items()}
    for name, text in (spec.get("overhead") or {}).items():
        if name in found or field == "requests":
            found[name] = add(found.get(name, _NONE), parse(text))
    return found


def _service(service: Tree) -> Usage:
    spec = service.get("spec") or {}
    sort, ports = spec.get("type"), spec.get("ports") or ()
    if sort == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    node_ports = len(ports) if sort in ("NodePort", "LoadBalancer") else 0
    balancers = _ONE if sort == "LoadBalancer" else _NONE
    return {
        "services": _ONE,
        "services.loadbalancers": balancers,
        "services.nodeports": parse(str(node_ports)),
    }


def _claim(claim: Tree) -> Usage:
    counted = {"persistentvolumeclaims": _ONE}
    asked = [
        parse(text)
        for path in (("spec", "resources", "requests", "storage"), ("status", "allocatedResources", "storage"))
        if (text := get_in(claim, path)) is not None
    ]
    if asked:
        counted["requests.storage"] = max(asked)
    said = get_in(claim, ("metadata", "annotations", _CLASS_ANNOTATION)) or get_in(claim, ("spec", "storageClassName"))
    of_class = {f"{said}{_OF_CLASS}{name}": amount for name, amount in counted.items()} if said else {}
    return {**counted, **of_class}


_MEASURES: Mapping[str, Callable[[Tree], Usage]] = MappingProxyType(
    {"pods": _pod, "services": _service, "persistentvolumeclaims": _claim}
)


QUOTAS = "resourcequotas"
_NOT_COUNTED = frozenset({"events", "events.events.k8s.io"})

Update = Callable[[str, str, Callable[[Tree], Tree]], Awaitable[None]]
"""Writes what a function makes of the quota of a namespace and name, from its newest state. Raises `NotFound`, and what
the function raises.
"""


class ResourceQuotas:
    """A validating plugin of what is created and of what may grow: the last one, since it writes quotas."""

    def __init__(self, store: WatchCache, update: Update) -> None:
        self._store = store
        self._update = update

    async def validate(self, attributes: Attributes) -> None:
        """Note what a create or an update adds. Raises `Forbidden` for what does not fit."""
        if not self._store.count(QUOTAS) or not _concerns(attributes):
            return
        rows = self._store.snapshot(QUOTAS).items(prefix=f"{attributes.namespace}/")
        names = [row.name for row in rows if charged(orjson.loads(row.data), attributes) is not None]
        if attributes.dry_run:
            return
        for name in names:
            with suppress(NotFound):  # which limits nothing any more
                await self._update(attributes.namespace, name, partial(_charge, attributes))


def _concerns(attributes: Attributes) -> bool:
    """Return whether quotas have a say in a write at all."""
    kind, old = attributes.kind, attributes.old_object
    if not attributes.namespace or kind.name in _NOT_COUNTED or kind.storage in _NOT_COUNTED:
        return False
    if old is None or kind.name != "pods" or attributes.subresource:
        return True
    return is_terminating(attributes.tree) != is_terminating(old)


def _charge(attributes: Attributes, quota: Tree) -> Tree:
    used = charged(quota, attributes)
    if used is not None:
        put_in(quota, ("status", "used"), used)
    return quota


def charged(quota: Tree, attributes: Attributes) -> Mapping[str, str] | None:
    """Return what is used of a quota once the write is made; None if that does not change. Raises `Forbidden`."""
    kind, tree = attributes.kind, attributes.tree
    hard = get_in(quota, ("status", "hard")) or {}
    names = [name for name in hard if is_counted(kind, name)]
    if not names or not in_scope(kind, tree, quota.get("spec") or {}):
        return None
    quota_name, used = quota["metadata"]["name"], get_in(quota, ("status", "used")) or {}
    if missing := unsaid(kind, tree, names):
        raise _refused(attributes, f"failed quota: {quota_name}: every container must say {'; '.join(missing)}")
    if unknown := sorted(name for name in names if name not in used):
        raise _refused(attributes, f"status unknown for quota: {quota_name}, resources: {','.join(unknown)}")
    added = {name: amount for name, amount in _added(quota, attributes).items() if name in hard}
    after = {name: add(parse(used[name]), amount) for name, amount in added.items()}
    if over := sorted(name for name, amount in after.items() if amount.number > parse(hard[name]).number):
        requested = {name: str(added[name]) for name in over}
        told = ((word, _listed(over, of)) for word, of in (("requested", requested), ("used", used), ("limited", hard)))
        raise _refused(
            attributes, f"exceeded quota: {quota_name}, {', '.join(f'{word}: {what}' for word, what in told)}"
        )
    return {**used, **{name: str(amount) for name, amount in after.items()}} if after else None


def _added(quota: Tree, attributes: Attributes) -> Usage:
    """Return what the write counts for beyond what its object did before."""
    kind, old = attributes.kind, attributes.old_object
    new = usage(kind, attributes.tree)
    counted = old is not None and in_scope(kind, old, quota.get("spec") or {})
    before = usage(kind, old) if counted and old is not None else {}
    grown = {name: _less(amount, before.get(name)) for name, amount in new.items()}
    return {name: amount for name, amount in grown.items() if amount.number > 0}


def _less(amount: Quantity, before: Quantity | None) -> Quantity:
    return amount if before is None else amount._replace(number=amount.number - before.number)


def _listed(names: list[str], of: Mapping[str, str]) -> str:
    return ",".join(f"{name}={of[name]}" for name in names)


def _refused(attributes: Attributes, why: str) -> Exception:
    return forbidden(attributes.kind.group, attributes.kind.plural, attributes.name, why)


def resource_quota(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ResourceQuota."""
    quotas = ResourceQuotas(parts.store, partial(parts.amend, ("", "v1", QUOTAS)))
    return AdmissionPlugin(
        "ResourceQuota",
        validating=(
            Rule(quotas.validate, ("create",), (ALL,)),
            Rule(quotas.validate, ("update",), ("pods", "services", "persistentvolumeclaims")),
            Rule(quotas.validate, ("update",), ("pods",), ("resize",)),
        ),
    )
