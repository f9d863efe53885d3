"""Default the requests of a Pod and its containers from their limits (KEP-2837 for the Pod's own)."""

from collections.abc import Callable, Mapping

from apiserver_stub.kinds.schema import Tree
from controller_manager.api.quantity import Quantity, add, parse

_Amounts = Mapping[str, str]
_Sums = Mapping[str, Quantity]
_PAGES = "hugepages-"
_SHARED = frozenset({"cpu", "memory"})  # what a node may promise more of than it has


def complete_resources(spec: Tree) -> None:
    """Fill in the requests of containers, then what the Pod as a whole asks for; in place."""
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        resources = container.get("resources")
        if resources and "limits" in resources:
            _fill(resources, "requests", resources["limits"])
    if spec.get("resources"):
        _of_pod(spec, spec["resources"])


def _fill(resources: Tree, field: str, known: _Amounts) -> None:
    said = resources.get(field, {})
    if not known.keys() <= said.keys():
        resources[field] = {**known, **said}


def _of_pod(spec: Tree, resources: Tree) -> None:
    """The Pod's own limits of huge pages are those of its containers; it asks for what they ask, or for its limits."""
    asked = resources.get("requests", {})
    pages = {k: v for k, v in total(spec, "limits").items() if k.startswith(_PAGES) and k not in asked}
    _fill(resources, "limits", pages)
    if "limits" in resources:
        _fill(resources, "requests", {k: v for k, v in total(spec, "requests").items() if k in _SHARED})
        _fill(resources, "requests", resources["limits"])


def total(spec: Tree, field: str) -> _Amounts:
    """Return the `limits` or `requests` of all containers at the time of the greatest need: init containers run one
    after another, sidecars among them beside all that comes later.
    """
    beside: _Sums = {}
    most: _Sums = {}
    for container in spec.get("initContainers", ()):
        wanted = _merged(beside, _amounts(container, field), add)
        if container.get("restartPolicy") == "Always":
            beside = wanted
        most = _merged(most, wanted, max)
    for container in spec.get("containers", ()):
        beside = _merged(beside, _amounts(container, field), add)
    return {name: str(quantity) for name, quantity in _merged(beside, most, max).items()}


def _amounts(container: Tree, field: str) -> _Sums:
    return {name: parse(text) for name, text in container.get("resources", {}).get(field, {}).items()}


def _merged(one: _Sums, other: _Sums, merge: Callable[[Quantity, Quantity], Quantity]) -> _Sums:
    both = {name: merge(one[name], quantity) for name, quantity in other.items() if name in one}
    return {**one, **other, **both}
