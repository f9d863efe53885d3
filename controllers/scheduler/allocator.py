"""Allocates devices to claims on a node (KEP-4381) by an ordered depth-first search; pure.

Claims and their requests are processed in order, and devices are taken in the order of the pools. An alternative of a
request (KEP-4816) is tried when the previous ones have failed. A device qualifies if it

matches the selectors of class and request and is accessible from the node;
has no taint that is not tolerated (KEP-5055);
is unallocated, or used with admin access (KEP-5018), or shared with enough capacity (KEP-5075);
does not exceed the remaining counters of its pool (KEP-4815);
meets all constraints of the claim together with the devices taken so far.

Within a request only later devices are tried after a device, since their order does not matter. A search with too many
steps is aborted.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec

from controller_manager.common.api.core import Node, Taint
from controller_manager.common.api.devices import Device, DeviceAttribute, DeviceConstraint, SelectorError
from controller_manager.common.api.quantity import Quantity, parse
from controller_manager.common.api.scheduling import NO_EXECUTE, NO_SCHEDULE, tolerates

from .device_capacity import consumption
from .device_pools import Candidate, CounterID, DeviceID, Pool, PoolID
from .device_requests import AllocationError, DeviceRequest, WantedClaim
from .device_usage import DeviceUsage, added

MOST_DEVICES = 32
"""Maximum devices per claim."""
MOST_STEPS, MOST_FOR_ALL = 50_000, 2_000_000
"""Maximum steps of a search for one node, and for all nodes. The cost of expressions counts too."""
# Steps after which a search yields.
_AT_ONCE = 50
_COST_OF_STEP = 20
_ALL = "All"
_KEPT_AWAY = (NO_SCHEDULE, NO_EXECUTE)


class InvalidPoolsError(AllocationError):
    """A node has no devices because of invalid pools; other nodes may have some."""


class Pick(NamedTuple):
    """A device for a request, with the consumed capacity if it is shared."""

    request: DeviceRequest
    candidate: Candidate
    consumed: Mapping[str, Quantity] | None = None


Picks = tuple[tuple[Pick, ...], ...]
"""The devices of each claim."""
TaintsOf = Callable[[Candidate], Sequence[Taint]]


def taints_of(candidate: Candidate) -> Sequence[Taint]:
    """Return the taints that the driver has published for a device."""
    return candidate.device.taints


class Attempt(msgspec.Struct):
    """State shared by all nodes while one pod is scheduled: device usage and remaining counters."""

    usage: DeviceUsage
    taints: TaintsOf = taints_of
    steps: int = MOST_FOR_ALL
    """The remaining steps for all nodes together."""
    _left: dict[PoolID, Mapping[CounterID, Decimal]] = {}

    def left(self, pool: Pool) -> Mapping[CounterID, Decimal]:
        """Return the remaining counters of a pool."""
        found = self._left.get(pool.id)
        if found is None:
            left = dict(pool.counters)
            for one in (*pool.candidates, *pool.others):
                if one.counters and (one.id in self.usage.whole or one.id in self.usage.shared):
                    for counter, amount in one.counters:
                        left[counter] -= amount
            found = self._left[pool.id] = left
        return found


Allocation = Generator[None, None, Picks | None]
"""A search for devices that yields regularly."""


def allocate(attempt: Attempt, node: Node, pools: Sequence[Pool], claims: Sequence[WantedClaim]) -> Allocation:
    """Return the devices for claims on a node with these pools, or None.

    Raises `AllocationError` if the search fails.
    """
    found = yield from _Search(attempt, node, pools, claims).run()
    if found is None and any(one.invalid for one in pools):
        raise InvalidPoolsError("invalid resource pools were encountered")
    return found


class _Place(NamedTuple):
    """A position in the search: a device of a request of a claim, by number, and the next candidate."""

    claim: int = 0
    request: int = 0
    chosen: DeviceRequest | None = None
    number: int = 0
    start: int = 0


_END = _Place(-1)


class _Search:
    """The search for one node. `_picks` and the counters hold what was taken so far."""

    def __init__(self, attempt: Attempt, node: Node, pools: Sequence[Pool], claims: Sequence[WantedClaim]) -> None:
        self._attempt = attempt
        self._usage = attempt.usage
        self._node = node
        self._pools = {one.id: one for one in pools}
        self._claims = claims
        self._steps = min(MOST_STEPS, attempt.steps)
        self._since_pause = 0
        self._offers: dict[int, _Offers] = {}
        self._picks: list[list[Pick]] = [[] for _ in claims]
        self._taken: dict[DeviceID, list[int]] = {}
        self._consumed: dict[DeviceID, list[Mapping[str, Decimal]]] = {}
        self._counted: dict[PoolID, dict[CounterID, Decimal]] = {}

    def run(self) -> Allocation:
        """Return the first solution. Raises `AllocationError`."""
        try:
            for claim in self._claims:
                self._check(claim)
            return (yield from self._solve())
        except SelectorError as error:
            raise AllocationError(str(error)) from None

    def _solve(self) -> Allocation:
        # One generator per decision. It yields the next position, and on resumption undoes its decision and makes the
        # next one. None means a pause.
        open_decisions = [self._decide(_Place())]
        while open_decisions:
            self._spend(1)
            place = next(open_decisions[-1], _END)
            if place is None or self._since_pause >= _AT_ONCE:
                self._since_pause = 0
                yield
            if place is None:
                continue
            if place is _END:
                open_decisions.pop()
            elif place.claim == len(self._claims):
                return tuple(map(tuple, self._picks))
            else:
                open_decisions.append(self._decide(place))
        return None

    def _check(self, claim: WantedClaim) -> None:
        """Raise AllocationError if a request for all devices meets an incomplete pool."""
        for one in (one for every in claim.requests for one in every):
            if one.wanted.allocation_mode == _ALL:
                problem = next((pool for pool in self._pools.values() if pool.problem), None)
                if problem is not None:
                    pool = "/".join(problem.id)
                    text = f"request {one.full_name}: asks for all devices, but resource pool {pool} {problem.problem}"
                    raise AllocationError(text)

    def _decide(self, at: _Place) -> Iterator[_Place | None]:
        requests = self._claims[at.claim].requests
        if at.request == len(requests):
            yield _Place(at.claim + 1)
        elif at.chosen is None:
            taken = len(self._picks[at.claim])
            for one in requests[at.request]:
                if taken + (yield from self._count_of(one)) <= MOST_DEVICES:
                    yield at._replace(chosen=one)
        elif at.number == (count := (yield from self._count_of(at.chosen))):
            if count:
                yield _Place(at.claim, at.request + 1)
        else:
            yield from self._devices(at, at.chosen, count - at.number)

    def _devices(self, at: _Place, request: DeviceRequest, lacking: int) -> Iterator[_Place | None]:
        """Take one device after the other while enough remain for the request."""
        offers, place = self._offers_for(request), at.start
        while (yield from offers.has(place + lacking)):
            pick = self._take(at.claim, request, offers.found[place])
            if pick is not None:
                yield at._replace(number=at.number + 1, start=place + 1)
                self._give_back(at.claim, pick)
            elif request.wanted.allocation_mode == _ALL:
                return
            place += 1
            if request.wanted.allocation_mode == _ALL:
                return
            self._spend(1)

    def _count_of(self, request: DeviceRequest) -> Generator[None, None, int]:
        if request.wanted.allocation_mode != _ALL:
            return request.wanted.count
        offers = self._offers_for(request)
        while (yield from offers.has(len(offers.found) + 1)):
            pass
        return len(offers.found)

    def _offers_for(self, request: DeviceRequest) -> "_Offers":
        found = self._offers.get(id(request))
        if found is None:
            found = self._offers[id(request)] = _Offers(self._matching(request))
        return found

    def _matching(self, request: DeviceRequest) -> Iterator[Candidate | None]:
        """Yield the candidates for a request, without those taken by this search; None means a pause."""
        is_for_all, whole = request.wanted.allocation_mode == _ALL, self._usage.whole
        for pool in self._pools.values():
            for one in pool.candidates:
                if one.id in whole and not request.admin and not is_for_all:
                    continue
                if self._since_pause >= _AT_ONCE:
                    yield None
                if not self._selects(request, one):
                    continue
                if self._consumption(request, one) is not None if is_for_all else not self._is_tainted(request, one):
                    yield one

    def _selects(self, request: DeviceRequest, one: Candidate) -> bool:
        for expression in request.selectors:
            met, cost = one.meets(expression)
            self._spend(1 + cost // _COST_OF_STEP)
            if not met:
                return False
        return one.is_reached(self._node)

    def _is_tainted(self, request: DeviceRequest, one: Candidate) -> bool:
        return any(
            taint.effect in _KEPT_AWAY and not any(tolerates(each, taint) for each in request.wanted.tolerations)
            for taint in self._attempt.taints(one)
        )

    def _take(self, claim: int, request: DeviceRequest, one: Candidate) -> Pick | None:
        """Take a device, if it qualifies."""
        holders, device = self._taken.get(one.id, ()), one.device
        if claim in holders if request.admin else (holders or one.id in self._usage.whole):
            return None
        if self._is_tainted(request, one) or not self._goes_with_others(claim, request, one):
            return None
        consumed = self._consumption(request, one)
        if consumed is None:
            return None
        is_shared = device.allow_multiple_allocations
        if one.counters and not (is_shared and self._is_in_use(one.id)) and not self._has_counters(one):
            return None
        pick = Pick(request, one, consumed if is_shared else None)
        self._note(claim, pick, 1)
        return pick

    def _give_back(self, claim: int, pick: Pick) -> None:
        self._note(claim, pick, -1)

    def _note(self, claim: int, pick: Pick, sign: int) -> None:
        """Add or remove a taken device. The last one taken is removed first."""
        one = pick.candidate
        if sign < 0:
            self._picks[claim].pop()
        if pick.consumed is None:
            holders = self._taken.setdefault(one.id, [])
            holders.append(claim) if sign > 0 else holders.remove(claim)
        elif sign > 0:
            amounts = {name: amount.number for name, amount in pick.consumed.items()}
            self._consumed.setdefault(one.id, []).append(amounts)
        else:
            self._consumed[one.id].pop()
        if one.counters and (pick.consumed is None or not self._is_in_use(one.id, but=max(sign, 0))):
            counted = self._counted.setdefault(PoolID(*one.id[:2]), {})
            for counter, amount in one.counters:
                counted[counter] = counted.get(counter, Decimal(0)) + sign * amount
        if sign > 0:
            self._picks[claim].append(pick)

    def _is_in_use(self, device: DeviceID, but: int = 0) -> bool:
        """Return whether a device is shared already, ignoring `but` uses of this search."""
        return device in self._usage.shared or len(self._consumed.get(device, ())) > but

    def _consumption(self, request: DeviceRequest, one: Candidate) -> Mapping[str, Quantity] | None:
        """Return the consumed capacity of a device, or None if it does not suffice."""
        device, capacity = one.device, request.wanted.capacity
        if not device.allow_multiple_allocations and capacity is None:
            return {}
        amounts = consumption(capacity, device.capacity)
        if amounts is None:
            return None
        before: Mapping[str, Decimal] = self._usage.consumed.get(one.id, {})
        for each in self._consumed.get(one.id, ()):
            before = added(before, each)
        enough = all(amount.number + before.get(name, 0) <= _value(device, name) for name, amount in amounts.items())
        return amounts if enough else None

    def _has_counters(self, one: Candidate) -> bool:
        pool = self._pools[PoolID(*one.id[:2])]
        left, counted = self._attempt.left(pool), self._counted.get(pool.id, {})
        return all(amount + counted.get(counter, 0) <= left[counter] for counter, amount in one.counters)

    def _goes_with_others(self, claim: int, request: DeviceRequest, one: Candidate) -> bool:
        for constraint in self._claims[claim].constraints:
            if not _concerns(constraint, request):
                continue
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            value = _attribute_of(one, name)
            if value is None:
                return False
            others = (pick.candidate for pick in self._picks[claim] if _concerns(constraint, pick.request))
            before = [_attribute_of(other, name) for other in others]
            if constraint.match_attribute is not None and before and before[0] != value:
                return False
            if constraint.distinct_attribute is not None and value in before:
                return False
        return True

    def _spend(self, steps: int) -> None:
        self._since_pause += steps
        self._steps -= steps
        self._attempt.steps -= steps
        if self._steps < 0:
            raise AllocationError("too many steps to find devices")


class _Offers:
    """Candidates that are computed on demand."""

    def __init__(self, source: Iterator[Candidate | None]) -> None:
        self.found: list[Candidate] = []
        self._source = source

    def has(self, number: int) -> Generator[None, None, bool]:
        """Return whether there are at least `number` candidates."""
        while len(self.found) < number:
            try:
                one = next(self._source)
            except StopIteration:
                return False
            if one is None:
                yield
            else:
                self.found.append(one)
        return True


def _attribute_of(one: Candidate, name: str) -> DeviceAttribute | None:
    """Return an attribute by its full name. A name without a domain belongs to the domain of the driver."""
    found = one.device.attributes.get(name)
    domain, _, identifier = name.partition("/")
    if found is None and domain == one.id.driver:
        found = one.device.attributes.get(identifier)
    return found


def _concerns(constraint: DeviceConstraint, request: DeviceRequest) -> bool:
    names = constraint.requests
    return not names or request.base in names or request.full_name in names


def _value(device: Device, name: str) -> Decimal:
    return parse(device.capacity[name].value).number
