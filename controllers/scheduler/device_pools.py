"""The published devices as pools that a node can access (KEP-4381); pure.

slices of a pool accessible from the node                  allocatable devices
of older generations                                       none
complete, or the others are known too                      their devices, by slice name, in order
not of the newest known generation                         none, since a newer one is being published
some are missing                                           none; requests for all devices fail
duplicate devices or counter sets, or unknown counters     none; requests for all devices fail
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from controller_manager.common.api.core import Node, NodeSelector
from controller_manager.common.api.devices import CounterConsumption, Device, ResourceSlice
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.scheduling import NodeMatcher

# Maximum cached expression results per device.
_REMEMBERED = 64


class PoolID(NamedTuple):
    driver: str
    pool: str


class DeviceID(NamedTuple):
    driver: str
    pool: str
    device: str


CounterID = tuple[str, str]


class Candidate:
    """A device of a slice. `counters` are the pool counters that it consumes."""

    __slots__ = ("_matches", "_value", "counters", "device", "id", "slice")

    def __init__(self, device: Device, of: ResourceSlice) -> None:
        self.device = device
        self.slice = of
        self.id = DeviceID(of.spec.driver, of.spec.pool.name, device.name)
        self.counters = tuple(_amounts(device.consumes_counters))
        self._matches: dict[str, bool] = {}
        self._value: dict[str, Any] | None = None

    def meets(self, expression: str) -> tuple[bool, int]:
        """Return whether the device matches an expression, and the cost. Raises `SelectorError`."""
        known = self._matches.get(expression)
        if known is not None:
            return known, 0
        from controller_manager.common.cel.devices import (
            device_value,
            selects,
        )  # costs a moment, and few clusters have devices

        if self._value is None:
            self._value = device_value(self.id.driver, self.device)
        if len(self._matches) >= _REMEMBERED:
            self._matches.clear()
        found, cost = selects(expression, self._value)
        self._matches[expression] = found
        return found, cost

    def is_reached(self, node: Node) -> bool:
        """Return whether a node that can access the slice can access the device too."""
        one = self.device
        if not self.slice.spec.per_device_node_selection:
            return True
        return _reaches(node, one.node_name, one.node_selector, all_nodes=one.all_nodes)


class Pool(NamedTuple):
    """The devices of a pool that a node can access; `others` are those that it cannot.

    `problem` says why none may be allocated, and `invalid` that this is permanent.
    """

    id: PoolID
    candidates: tuple[Candidate, ...] = ()
    others: tuple[Candidate, ...] = ()
    counters: Mapping[CounterID, Decimal] = {}
    problem: str = ""
    invalid: bool = False


class _Slice(NamedTuple):
    slice: ResourceSlice
    candidates: tuple[Candidate, ...]


class DevicePools(msgspec.Struct):
    """All slices, and the pools that they form for nodes."""

    _slices: dict[str, _Slice] = {}
    _by_pool: dict[PoolID, dict[str, _Slice]] = {}
    _by_node: dict[str, set[str]] = {}
    _shared: set[str] = set()
    _built: dict[PoolID, dict[tuple[str, ...], Pool | None]] = {}
    _known: dict[str, tuple[Node, tuple[Pool, ...]]] = {}

    def set_slice(self, name: str, one: ResourceSlice | None) -> None:
        """Add, update or remove a slice."""
        before = self._slices.pop(name, None)
        if before is not None:
            self._leave(name, before.slice)
        if one is None:
            return
        pool = PoolID(one.spec.driver, one.spec.pool.name)
        found = _Slice(one, tuple(Candidate(device, one) for device in one.spec.devices))
        self._slices[name] = self._by_pool.setdefault(pool, {})[name] = found
        if _is_shared(one):
            self._shared.add(name)
        else:
            self._by_node.setdefault(one.spec.node_name, set()).add(name)
        self._forget(one)

    def of(self, node: Node) -> tuple[Pool, ...]:
        """Return the pools that a node can access, in allocation order."""
        name = node.metadata.name
        known = self._known.get(name)
        if known is not None and known[0] is node:
            return known[1]
        reached: dict[PoolID, list[str]] = {}
        for each in (*self._by_node.get(name, ()), *self._shared):
            one = self._slices[each].slice
            if _is_reached(one, node):
                reached.setdefault(PoolID(one.spec.driver, one.spec.pool.name), []).append(each)
        every = (self._pool(pool, names) for pool, names in reached.items())
        found = tuple(sorted((one for one in every if one is not None), key=lambda one: (_must_wait(one), one.id)))
        self._known[name] = node, found
        return found

    def forget_node(self, name: str) -> None:
        """Remove a node from the cache."""
        self._known.pop(name, None)

    def _pool(self, pool: PoolID, names: Sequence[str]) -> Pool | None:
        built, key = self._built.setdefault(pool, {}), tuple(sorted(names))
        if key not in built:
            built[key] = _build(pool, [self._slices[name] for name in key], self._by_pool[pool].values())
        return built[key]

    def _leave(self, name: str, one: ResourceSlice) -> None:
        pool = PoolID(one.spec.driver, one.spec.pool.name)
        del self._by_pool[pool][name]
        if not self._by_pool[pool]:
            del self._by_pool[pool]
        self._shared.discard(name)
        of_node = self._by_node.get(one.spec.node_name, set())
        of_node.discard(name)
        if not of_node:
            self._by_node.pop(one.spec.node_name, None)
        self._forget(one)

    def _forget(self, one: ResourceSlice) -> None:
        """Drop cached pools with a slice, and those of its pool, which may belong to other nodes."""
        pool = PoolID(one.spec.driver, one.spec.pool.name)
        self._built.pop(pool, None)
        if _is_shared(one) or any(_is_shared(each.slice) for each in self._by_pool.get(pool, {}).values()):
            self._known.clear()
        for each in (*self._by_pool.get(pool, {}).values(), _Slice(one, ())):
            self._known.pop(each.slice.spec.node_name, None)


def _build(pool: PoolID, reached: Sequence[_Slice], every: Iterable[_Slice]) -> Pool | None:
    """Return the pool of slices, or None if a newer generation is being published."""
    generation = max(one.slice.spec.pool.generation for one in reached)
    slices = [one for one in reached if one.slice.spec.pool.generation == generation]
    count, whole = slices[0].slice.spec.pool.resource_slice_count, slices
    if len(slices) != count:
        known = list(every)
        if any(one.slice.spec.pool.generation > generation for one in known):
            return None
        whole = [one for one in known if one.slice.spec.pool.generation == generation]
        if len(whole) != count:
            return Pool(pool, problem="is currently being updated")
    there = {one.slice.metadata.name for one in slices}
    candidates = tuple(each for one in slices for each in one.candidates)
    others = tuple(each for one in whole if one.slice.metadata.name not in there for each in one.candidates)
    sets = [each for one in slices for each in one.slice.spec.shared_counters]
    counters = dict(_amounts(sets))
    if (
        len({one.id for one in candidates}) < len(candidates)
        or len({one.name for one in sets}) < len(sets)
        or any(counter not in counters for one in (*candidates, *others) for counter, _ in one.counters)
    ):
        return Pool(pool, problem="is currently invalid", invalid=True)
    return Pool(pool, candidates, others, counters)


def _must_wait(pool: Pool) -> bool:
    """Return whether a pool has devices with binding conditions, so that other pools are preferred."""
    return any(one.device.binding_conditions for one in pool.candidates)


def _is_shared(one: ResourceSlice) -> bool:
    return not one.spec.node_name or bool(one.spec.shared_counters)


def _is_reached(one: ResourceSlice, node: Node) -> bool:
    spec = one.spec
    if spec.shared_counters:
        return True
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return _reaches(node, spec.node_name, spec.node_selector, all_nodes=spec.all_nodes)
    return spec.per_device_node_selection and any(
        _reaches(node, device.node_name, device.node_selector, all_nodes=device.all_nodes) for device in spec.devices
    )


def _reaches(node: Node, name: str, selector: NodeSelector | None, *, all_nodes: bool) -> bool:
    if name or all_nodes:
        return all_nodes or node.metadata.name == name
    return selector is not None and NodeMatcher.of(selector).matches(node)


def _amounts(sets: Iterable[Any]) -> Iterable[tuple[CounterID, Decimal]]:
    """Yield the amounts of counters in counter sets or consumptions."""
    for one in sets:
        name = one.counter_set if isinstance(one, CounterConsumption) else one.name
        for counter, amount in one.counters.items():
            yield (name, counter), parse(amount.value).number
