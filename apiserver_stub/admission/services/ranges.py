"""The ranges of service addresses (flags, ServiceCIDR objects), and the choice of numbers in them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

import msgspec

from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Corrupt, Row
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import GROUP_DOMAIN

# Random allocation: the lower band of a range is used last, to keep it free for static requests.


@dataclass(frozen=True, slots=True)
class NumberRange:
    """`size` numbers from `first` on; the lowest `band` numbers are drawn last (KEP-3070, KEP-3668)."""

    first: int
    size: int
    band: int

    def __contains__(self, number: int) -> bool:
        return 0 <= number - self.first < self.size

    def draw(self, is_free: Callable[[int], bool], below: Callable[[int], int]) -> int | None:
        """Return a free number, searched from a random offset in each band; None if all are taken.

        `below(n)` returns a number from 0 to n-1.
        """
        for start, count in ((self.first + self.band, self.size - self.band), (self.first, self.band)):
            offset = below(count) if count else 0
            for step in range(count):
                number = start + (offset + step) % count
                if is_free(number):
                    return number
        return None

    def draw_many(self, count: int, is_free: Callable[[int], bool], below: Callable[[int], int]) -> list[int]:
        """Return `count` free numbers, those of the lower band last; fewer if there are no more. Checks each number
        once.
        """
        found: list[int] = []
        for start, size in ((self.first + self.band, self.size - self.band), (self.first, self.band)):
            free = [number for number in range(start, start + size) if is_free(number)] if len(found) < count else []
            while free and len(found) < count:
                place = below(len(free))
                free[place], free[-1] = free[-1], free[place]
                found.append(free.pop())
        return found


def addresses(network: IPv4Network | IPv6Network) -> NumberRange:
    """Return the addresses of a network except the network address and, for IPv4, the broadcast address."""
    size = network.num_addresses - (2 if network.version == 4 else 1)
    return NumberRange(int(network.network_address) + 1, size, _band(size, size // 16, 256))


def ports(numbers: range) -> NumberRange:
    """Return the ports of a range."""
    return NumberRange(numbers.start, len(numbers), _band(len(numbers), len(numbers) // 32, 128))


def _band(size: int, share: int, most: int) -> int:
    """Return a share of a range within bounds; 0 for a small range."""
    return 0 if size <= 16 else min(max(16, share), most)


# The ranges of service addresses: those of the flags, and those of ready ServiceCIDR objects.

Network = IPv4Network | IPv6Network
_RANGES = f"servicecidrs.networking.{GROUP_DOMAIN}"


class _Metadata(Model):
    deletion_timestamp: str | None = None


class _Spec(Model):
    cidrs: tuple[str, ...] | None = None


class _Condition(Model):
    type: str = ""
    status: str = ""


class _Status(Model):
    conditions: tuple[_Condition, ...] | None = None


class _ServiceCidr(Model):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_STORED = msgspec.json.Decoder(_ServiceCidr)


class ServiceRanges:
    """Follows the store. `by_family` maps the families of the flags to their networks: those of the flags first, then
    by object name. The mapping object stays the same.
    """

    def __init__(self, store: WatchCache, first: Sequence[Network]) -> None:
        self._store = store
        self._first = tuple(first)
        self._further: dict[str, tuple[Network, ...]] = {}
        self._by_family: dict[str, tuple[Network, ...]] = {f"IPv{network.version}": () for network in first}
        self._rank()

    @property
    def by_family(self) -> Mapping[str, Sequence[Network]]:
        """Networks by `IPv4` and `IPv6`."""
        return self._by_family

    def follow(self) -> None:
        """Read the stored ranges and subscribe to changes."""
        for row in self._store.snapshot(_RANGES).items():
            with suppress(Corrupt):
                self._note(row)
        self._rank()
        self._store.subscribe(self._changed)

    def _changed(self, changes: Sequence[Change]) -> None:
        concerned = [change for change in changes if change.row.resource == _RANGES]
        for change in concerned:
            if change.deleted:
                self._further.pop(change.row.key, None)
            else:
                self._note(change.row)
        if concerned:
            self._rank()

    def _note(self, row: Row) -> None:
        self._further[row.key] = networks_of(row.data)

    def _rank(self) -> None:
        every = [*self._first, *(network for _, networks in sorted(self._further.items()) for network in networks)]
        for family in self._by_family:
            self._by_family[family] = tuple(dict.fromkeys(n for n in every if f"IPv{n.version}" == family))


def networks_of(data: bytes) -> tuple[Network, ...]:
    """Return the networks of a ServiceCIDR (JSON); empty if it is not ready or is being deleted."""
    found = _STORED.decode(data)
    ready = [condition.status for condition in found.status.conditions or () if condition.type == "Ready"]
    if found.metadata.deletion_timestamp or ready not in ([], ["True"]):
        return ()
    return tuple(ip_network(text, strict=False) for text in found.spec.cidrs or ())
