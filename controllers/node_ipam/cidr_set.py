"""Which parts of the ranges of a cluster are given to nodes; pure.

A part is in use while anybody holds it: a node that says so, a node that it is being given to, or the services. Two may
hold the same, which an administrator can bring about; then it is free when both are gone.
"""

from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

import msgspec

from controller_manager.common.base.metrics import Distribution

Network = IPv4Network | IPv6Network

# 1, 5, 25, … tries.
TRIES = tuple(5.0**step for step in range(5))
# So many hold a part at most that are counted; with more of them it is in use for good.
_MANY = 255
_ONE_MORE = bytes(min(count + 1, _MANY) for count in range(256))
_ONE_LESS = bytes(count if count == _MANY else max(count - 1, 0) for count in range(256))


class CIDRSet:
    """The parts of one range, all of one size, and how many hold each of them.

    `allocations` and `releases` count parts that came into use and that went out of it, `tries` the parts in use that
    were passed over to find each free one.
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
        """Hold the next free part, going round; None if there is none."""
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
        """Hold all parts that a range has addresses of; return whether there are any."""
        return self._count(network, _ONE_MORE)

    def release(self, network: Network) -> None:
        """Hold the same no longer."""
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
    """The ranges that a node, by its uid, has or is being given."""

    uid: str
    ranges: tuple[str, ...]


class RangeAllocator:
    """The ranges of all nodes, of each set one; `reserved` are left out, as the ranges of services are."""

    def __init__(self, sets: Sequence[CIDRSet], reserved: Collection[Network] = ()) -> None:
        self.sets = sets
        self._held: dict[str, Held] = {}
        for cidr_set in sets:
            for network in reserved:
                cidr_set.hold(network)

    def held(self, name: str) -> Held | None:
        """What a node holds."""
        return self._held.get(name)

    def assign(self, name: str, uid: str) -> tuple[str, ...]:
        """Return the ranges for a node that has none: the same as before for the same node, until it is released.

        Empty if a set has none left; then nothing is held.
        """
        held = self._held.get(name)
        if held is not None and held.uid == uid:
            return held.ranges
        self.release(name)
        parts = [part for cidr_set in self.sets if (part := cidr_set.take()) is not None]
        if len(parts) < len(self.sets):
            for part in parts:
                self._let_go(part)
            return ()
        ranges = tuple(map(str, parts))
        self._held[name] = Held(uid, ranges)
        return ranges

    def occupy(self, name: str, uid: str, ranges: Sequence[str]) -> list[str]:
        """Hold what a node says it has, instead of what it held; return those ranges that are none of the cluster's."""
        said = Held(uid, tuple(ranges))
        if self._held.get(name) == said:
            return []
        self.release(name)
        self._held[name] = said
        return [text for text in said.ranges if not any(one.hold(part) for part in _read(text) for one in self.sets)]

    def release(self, name: str) -> bool:
        """Hold nothing for a node any more; return whether anything was held."""
        held = self._held.pop(name, None)
        for text in held.ranges if held is not None else ():
            for part in _read(text):
                self._let_go(part)
        return held is not None

    def _let_go(self, part: Network) -> None:
        for cidr_set in self.sets:
            cidr_set.release(part)


def _read(text: str) -> Iterator[Network]:
    """The range that a node names, if it is one."""
    try:
        yield ip_network(text, strict=False)
    except ValueError:
        return
