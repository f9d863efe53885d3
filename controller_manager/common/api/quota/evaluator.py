"""How objects count in resource quotas: any kind by number, services and claims to volumes for more than that."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.pod_resources import Amounts
from controller_manager.common.api.quantity import Quantity, canonical, parse
from controller_manager.common.api.tree import FrozenTree

ONE, NONE = parse("1"), parse("0")
_NOTHING: Amounts = MappingProxyType({})
_NO_CLASSES: Mapping[str, frozenset[str]] = MappingProxyType({})


class QuotaScope(NamedTuple):
    """A requirement of a quota of the objects that it is meant for (`scopeSelector.matchExpressions[]`)."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def selects(self, names: frozenset[str]) -> bool:
        """Return whether one of the classes of an object is selected; `NotIn` also holds where there is none."""
        match self.operator:
            case "Exists":
                return bool(names)
            case "DoesNotExist":
                return not names
            case "In":
                return not names.isdisjoint(self.values)
        return not names or not names.issubset(self.values)

    def __str__(self) -> str:
        return f"{{{self.name} {self.operator} [{' '.join(self.values)}]}}"


def scope_of(requirement: FrozenTree) -> QuotaScope:
    """Return a scope of a tree."""
    values = tuple(requirement.get("values") or ())
    return QuotaScope(requirement.get("scopeName", ""), requirement.get("operator", ""), values)


def scopes_of(spec: FrozenTree) -> list[QuotaScope]:
    """Return all scopes of the spec of a quota."""
    selector = spec.get("scopeSelector") or {}
    return [
        *(QuotaScope(name) for name in spec.get("scopes") or ()),
        *map(scope_of, selector.get("matchExpressions") or ()),
    ]


class Measured(NamedTuple):
    """What an object counts for: its `usage` until a moment (None: for good), and what is left of that `afterwards`;
    the `scopes` it is in, and its names in scopes that select `classes`.
    """

    usage: Amounts
    scopes: frozenset[str] = frozenset()
    classes: Mapping[str, frozenset[str]] = _NO_CLASSES
    until: datetime | None = None
    afterwards: Amounts = _NOTHING

    def usage_at(self, now: datetime) -> Amounts:
        """Return what the object counts for at a moment."""
        return self.afterwards if self.until is not None and now > self.until else self.usage

    def is_in(self, scope: QuotaScope) -> bool:
        """Return whether the object is in a scope."""
        names = self.classes.get(scope.name)
        return scope.name in self.scopes if names is None else scope.selects(names)

    def is_in_all(self, scopes: Iterable[QuotaScope]) -> bool:
        """Return whether the object is in each of the scopes."""
        return all(map(self.is_in, scopes))


class Evaluator:
    """Objects of one resource (`plural.group`) count by number, under `count/RESOURCE` and the aliases."""

    has_scopes = False
    """Whether scopes are for these objects at all."""

    def __init__(self, resource: str, *names: str) -> None:
        self.resource = resource
        self.object_count = f"count/{resource}"
        self._names = frozenset({self.object_count, *names})

    def counts(self, name: str) -> bool:
        """Return whether objects count for a resource of a quota."""
        return name in self._names

    def measure(self, obj: FrozenTree) -> Measured:
        """Return what an object counts for. Raises `ValueError` for a quantity that is none."""
        return Measured(dict.fromkeys(self._names, ONE))

    def unsaid(self, obj: FrozenTree, names: Sequence[str]) -> str:
        """Return what an object has to say, but does not, where these resources are limited; empty if nothing."""
        return ""


class ServiceEvaluator(Evaluator):
    """Services count for their load balancers and node ports too."""

    _BALANCERS, _NODE_PORTS = "services.loadbalancers", "services.nodeports"

    def __init__(self) -> None:
        super().__init__("services", "services", self._BALANCERS, self._NODE_PORTS)

    def measure(self, obj: FrozenTree) -> Measured:
        spec = obj.get("spec") or {}
        sort, ports = spec.get("type"), spec.get("ports") or ()
        if sort == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if port.get("nodePort")]
        found = {**super().measure(obj).usage, self._BALANCERS: NONE, self._NODE_PORTS: NONE}
        if sort in ("NodePort", "LoadBalancer"):
            found[self._NODE_PORTS] = parse(str(len(ports)))
        if sort == "LoadBalancer":
            found[self._BALANCERS] = ONE
        return Measured(found)


_CLAIMS = "persistentvolumeclaims"
_STORAGE = "requests.storage"
_OF_CLASS = f".storageclass.storage.{GROUP_DOMAIN}/"
_CLASS_ANNOTATION = f"volume.beta.{PLATFORM_DOMAIN}/storage-class"


class VolumeClaimEvaluator(Evaluator):
    """Claims to volumes count for their storage, and both number and storage also for their storage class; scopes
    select the classes of attributes that they have or want.
    """

    has_scopes = True

    def __init__(self) -> None:
        super().__init__(_CLAIMS, _CLAIMS, _STORAGE)

    def counts(self, name: str) -> bool:
        return super().counts(name) or name.endswith((_OF_CLASS + _CLAIMS, _OF_CLASS + _STORAGE))

    def measure(self, obj: FrozenTree) -> Measured:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        counted = {_CLAIMS: ONE}
        if (storage := _storage(spec, status)) is not None:
            counted[_STORAGE] = storage
        name = _storage_class(obj)
        of_class = {f"{name}{_OF_CLASS}{resource}": amount for resource, amount in counted.items()} if name else {}
        wanted = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
        classes = (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), wanted)
        return Measured(
            {self.object_count: ONE, **counted, **of_class},
            classes={"VolumeAttributesClass": frozenset(filter(None, classes))},
        )


def _storage(spec: FrozenTree, status: FrozenTree) -> Quantity | None:
    """Return the bytes that a claim asks for, or those that it was given while it grew, if these are more."""
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is None:
        return None
    given = (status.get("allocatedResources") or {}).get("storage")
    amounts = [parse(canonical(text, 0)) for text in (asked, given) if text is not None]
    return max(amounts, key=lambda amount: amount.number)


def _storage_class(claim: FrozenTree) -> str:
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    found: str | None = annotations.get(_CLASS_ANNOTATION)
    return (claim.get("spec") or {}).get("storageClassName") or "" if found is None else found
