"""Quota usage of objects: all kinds count by number; services and volume claims also by other resources."""

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
    """A scope requirement of a quota (`scopeSelector.matchExpressions[]`)."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def selects(self, names: frozenset[str]) -> bool:
        """Return whether one of the class names of an object is selected; `NotIn` also matches an object without
        any.
        """
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
    """Return a scope from its tree."""
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
    """The usage of an object: `usage` until a time (None: forever), `afterwards` from then on; the `scopes` it is in,
    and its class names for scopes that select `classes`.
    """

    usage: Amounts
    scopes: frozenset[str] = frozenset()
    classes: Mapping[str, frozenset[str]] = _NO_CLASSES
    until: datetime | None = None
    afterwards: Amounts = _NOTHING

    def usage_at(self, now: datetime) -> Amounts:
        """Return the usage at a time."""
        return self.afterwards if self.until is not None and now > self.until else self.usage

    def is_in(self, scope: QuotaScope) -> bool:
        """Return whether the object is in a scope."""
        names = self.classes.get(scope.name)
        return scope.name in self.scopes if names is None else scope.selects(names)

    def is_in_all(self, scopes: Iterable[QuotaScope]) -> bool:
        """Return whether the object is in all scopes."""
        return all(map(self.is_in, scopes))


class Evaluator:
    """Counts objects of one resource (`plural.group`) under `count/RESOURCE` and aliases."""

    has_scopes = False
    """Whether scopes apply to these objects."""

    def __init__(self, resource: str, *names: str) -> None:
        self.resource = resource
        self.object_count = f"count/{resource}"
        self._names = frozenset({self.object_count, *names})

    def counts(self, name: str) -> bool:
        """Return whether objects use a resource of a quota."""
        return name in self._names

    def measure(self, obj: FrozenTree) -> Measured:
        """Return the usage of an object. Raises `ValueError` for an invalid quantity."""
        return Measured(dict.fromkeys(self._names, ONE))

    def unsaid(self, obj: FrozenTree, names: Sequence[str]) -> str:
        """Return the missing fields of an object that limits on these resources require; empty if there are none."""
        return ""


class ServiceEvaluator(Evaluator):
    """Counts load balancers and node ports of services too."""

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
    """Counts the storage of volume claims too, in total and by storage class; scopes select their current and desired
    volume attributes classes.
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
    """Return the requested bytes of a claim, or the allocated ones during an expansion if they are larger."""
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
