"""Tracks which parts of the cluster CIDRs are allocated; pure.

A part is in use while it has a holder: a node that has it, a node that is getting it, or the service CIDR. An
administrator may give a part to two nodes. It is then free when both are gone.
"""

from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

import msgspec

from controller_manager.common.base.metrics import Distribution

Network = IPv4Network | IPv6Network

# Histogram buckets: 1, 5, 25, … tries.
TRIES = tuple(5.0**step for step in range(5))
# Maximum counted holders of a part. With more, it stays in use for good.
_MANY = 255
_ONE_MORE = bytes(min(count + 1, _MANY) for count in range(256))
_ONE_LESS = bytes(count if count == _MANY else max(count - 1, 0) for count in range(256))


class CIDRSet:
    """The parts of one CIDR, of equal size, and the number of holders of each.

    `allocations` and `releases` count parts that became used and unused. `tries` are the used parts skipped per
    allocation.
    """

    def __init__(self, network: Network, mask: int) -> None:
        self.network = network
        self.size = 1 << (mask - network.prefixlen)
        self.used = self.allocations = self.releases = 0
        self.tries = Distribution(TRIES)
        self._mask = mask
        self._shift = network.max_prefixlen - mask
        self._first = int(network.network_address)
        self._holders = bytearray(self.size)
        self._next = 0

    def take(self) -> Network | None:
        """Allocate the next free part, in round-robin order, or return None."""
        found = self._holders.find(0, self._next)
        if found < 0:
            found = self._holders.find(0, 0, self._next)
        if found < 0:
            return None
        self.tries.observe((found - self._next) % self.size)
        self._next = (found + 1) % self.size
        part = type(self.network)((self._first + (found << self._shift), self._mask))
        self.hold(part)
        return part

    def hold(self, network: Network) -> bool:
        """Add a holder to all parts that overlap a CIDR. Return whether there are any."""
        return self._count(network, _ONE_MORE)

    def release(self, network: Network) -> None:
        """Remove a holder from the same parts."""
        self._count(network, _ONE_LESS)

    def _count(self, network: Network, step: bytes) -> bool:
        if network.version != self.network.version or not network.overlaps(self.network):
            return False
        first = max(int(network.network_address) - self._first, 0) >> self._shift
        last = min((int(network.broadcast_address) - self._first) >> self._shift, self.size - 1)
        before = self._holders[first : last + 1]
        after = before.translate(step)
        self._holders[first : last + 1] = after
        change = before.count(0) - after.count(0)
        self.used += change
        self.allocations += max(change, 0)
        self.releases += max(-change, 0)
        return True


class Held(msgspec.Struct, frozen=True):
    """The CIDRs that a node has or is getting, with the uid of the node."""

    uid: str
    ranges: tuple[str, ...]


class RangeAllocator:
    """The CIDRs of all nodes, one per set. `reserved` CIDRs, such as those of services, are excluded."""

    def __init__(self, sets: Sequence[CIDRSet], reserved: Collection[Network] = ()) -> None:
        self.sets = sets
        self._held: dict[str, Held] = {}
        for cidr_set in sets:
            for network in reserved:
                cidr_set.hold(network)

    def held(self, name: str) -> Held | None:
        """Return the CIDRs held for a node, or None."""
        return self._held.get(name)

    def assign(self, name: str, uid: str) -> tuple[str, ...]:
        """Return CIDRs for a node without any; the same ones for the same node until they are released.

        The result is empty, and nothing is held, if a set is exhausted.
        """
        held = self._held.get(name)
        if held is not None and held.uid == uid:
            return held.ranges
        self.release(name)
        parts = [part for cidr_set in self.sets if (part := cidr_set.take()) is not None]
        if len(parts) < len(self.sets):
            for part in parts:
                self._release_part(part)
            return ()
        ranges = tuple(map(str, parts))
        self._held[name] = Held(uid, ranges)
        return ranges

    def occupy(self, name: str, uid: str, ranges: Sequence[str]) -> list[str]:
        """Hold the CIDRs that a node has, instead of previous ones. Return those outside the cluster CIDRs."""
        held = Held(uid, tuple(ranges))
        if self._held.get(name) == held:
            return []
        self.release(name)
        self._held[name] = held
        return [text for text in held.ranges if not any(one.hold(part) for part in _read(text) for one in self.sets)]

    def release(self, name: str) -> bool:
        """Release the CIDRs of a node. Return whether there were any."""
        held = self._held.pop(name, None)
        for text in held.ranges if held is not None else ():
            for part in _read(text):
                self._release_part(part)
        return held is not None

    def _release_part(self, part: Network) -> None:
        for cidr_set in self.sets:
            cidr_set.release(part)


def _read(text: str) -> Iterator[Network]:
    """Yield the CIDR of a text, if it is valid."""
    try:
        yield ip_network(text, strict=False)
    except ValueError:
        return
