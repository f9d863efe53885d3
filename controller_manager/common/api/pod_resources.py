"""Resource requests and limits of pods (KEP-753, KEP-1287, KEP-2837), and their quality of service class; pods are
plain trees.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from controller_manager.common.api.quantity import Quantity, add, parse
from controller_manager.common.api.tree import FrozenTree

Amounts = Mapping[str, Quantity]
"""Quantities by resource name."""

HUGE_PAGES = "hugepages-"
_NOTHING: FrozenTree = {}
_OF_WHOLE_PODS = frozenset({"cpu", "memory"})  # and huge pages


def parsed(texts: Mapping[str, str] | None) -> dict[str, Quantity]:
    """Return parsed quantities by name; empty for None. Raises `ValueError`."""
    return {name: parse(text) for name, text in (texts or {}).items()}


def plus(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    """Return the sums by resource name."""
    total = dict(one)
    _add_to(total, other)
    return total


def largest(*lists: Amounts) -> dict[str, Quantity]:
    """Return the largest amount of each resource; the first of equal ones."""
    found: dict[str, Quantity] = {}
    for amounts in lists:
        for name, amount in amounts.items():
            if name not in found or amount.number > found[name].number:
                found[name] = amount
    return found


def container_total(spec: FrozenTree, amounts_of: Callable[[FrozenTree], Amounts]) -> Amounts:
    """Return the maximum that all containers need at the same time: init containers run one after another, sidecars
    together with everything after them. Takes time linear in the amounts.
    """
    needed: dict[str, Quantity] = {}
    for container in _items(spec, "containers"):
        _add_to(needed, amounts_of(container))
    beside: dict[str, Quantity] = {}
    most: dict[str, Quantity] = {}
    for container in _items(spec, "initContainers"):
        own = amounts_of(container)
        if is_sidecar(container):
            _add_to(needed, own)
            _add_to(beside, own)
            now = {name: beside[name] for name in own}
        else:
            now = {name: add(amount, beside[name]) if name in beside else amount for name, amount in own.items()}
        for name, amount in now.items():
            if name not in most or amount.number > most[name].number:
                most[name] = amount
    return largest(needed, most)


def _add_to(total: dict[str, Quantity], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = add(total[name], amount) if name in total else amount


def is_sidecar(container: FrozenTree) -> bool:
    """Return whether an init container is a sidecar, which keeps running."""
    return container.get("restartPolicy") == "Always"


def pod_requests(pod: FrozenTree) -> Amounts:
    """Return the requests of a pod with its overhead; for containers being resized, the maximum of spec, allocation and
    runtime.
    """
    spec = _part(pod, "spec")
    found = dict(container_total(spec, _Effective(pod, "requests")))
    found |= _of_the_whole(spec, "requests")
    return plus(found, parsed(spec.get("overhead")))


def pod_limits(pod: FrozenTree) -> Amounts:
    """Return the limits of a pod; the overhead is added to existing limits."""
    spec = _part(pod, "spec")
    found = dict(container_total(spec, _Effective(pod, "limits")))
    found |= _of_the_whole(spec, "limits")
    for name, amount in parsed(spec.get("overhead")).items():
        if name in found and found[name].number:
            found[name] = add(found[name], amount)
    return found


def has_whole_resources(spec: FrozenTree) -> bool:
    """Return whether a pod has pod-level resources (KEP-2837)."""
    return bool(_of_the_whole(spec, "requests") or _of_the_whole(spec, "limits"))


def quality_of_service(spec: FrozenTree) -> str:
    """Return the QoS class of a pod: Guaranteed if each container's limits equal its requests, BestEffort without any.

    For a pod with pod-level resources, only these count.
    """
    whole = _part(spec, "resources")
    if whole.get("requests") or whole.get("limits"):
        asks = [whole]
    else:
        asks = [_part(one, "resources") for field in ("containers", "initContainers") for one in _items(spec, field)]
    some, limited = False, True
    for ask in asks:
        requests, limits = ask.get("requests") or {}, ask.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name) or "0", limits.get(name) or "0"
            some = some or request != "0" or limit != "0"
            limited = limited and limit != "0" and request in ("0", limit)
    if not some:
        return "BestEffort"
    return "Guaranteed" if limited else "Burstable"


def _of_the_whole(spec: FrozenTree, field: str) -> Amounts:
    declared = _part(spec, "resources").get(field) or {}
    return {
        name: parse(text) for name, text in declared.items() if name in _OF_WHOLE_PODS or name.startswith(HUGE_PAGES)
    }


class _Effective:
    """The effective resources of each container during a resize (KEP-1287): requests are the maximum of desired,
    allocated and actual values, limits the maximum of desired and actual ones. Infeasible desired values are ignored.
    """

    def __init__(self, pod: FrozenTree, field: str) -> None:
        status = _part(pod, "status")
        self._field = field
        self._infeasible = _is_infeasible(_items(status, "conditions"))
        self._statuses = {
            one.get("name"): one
            for statuses in ("containerStatuses", "initContainerStatuses")
            for one in _items(status, statuses)
            if one.get("resources") is not None
        }
        self._run_beside = {one.get("name") for one in _items(_part(pod, "spec"), "containers")}

    def __call__(self, container: FrozenTree) -> Amounts:
        wanted = parsed(_part(container, "resources").get(self._field))
        name = container.get("name")
        status = self._statuses.get(name) if self._statuses else None
        if status is None or not (name in self._run_beside or is_sidecar(container)):
            return wanted
        in_effect = [parsed(_part(status, "resources").get(self._field))]
        if self._field == "requests":
            in_effect.append(parsed(status.get("allocatedResources")))
        return largest(*in_effect) if self._infeasible else largest(wanted, *in_effect)


def _is_infeasible(conditions: Iterable[FrozenTree]) -> bool:
    pending = next((one for one in conditions if one.get("type") == "PodResizePending"), _NOTHING)
    return pending.get("reason") == "Infeasible"


def _part(tree: FrozenTree, field: str) -> FrozenTree:
    return tree.get(field) or _NOTHING


def _items(tree: FrozenTree, field: str) -> Sequence[FrozenTree]:
    return tree.get(field) or ()
