"""Allocates addresses: those of pods from the CIDRs of their nodes, and those of nodes."""

import ipaddress
from collections.abc import Hashable, Iterable, Sequence

_SKIPPED = 2  # the address of a network, and that of its gateway


class Range:
    """The used addresses of a network, and the next ones."""

    def __init__(self, network: str) -> None:
        found = ipaddress.ip_network(network, strict=False)
        self._first, self._count = int(found.network_address), found.num_addresses
        self._make = ipaddress.IPv4Address if found.version == 4 else ipaddress.IPv6Address
        self._used: set[int] = set()
        self._next = _SKIPPED

    def take(self) -> str:
        """Return an unused address, or an empty string."""
        for _ in range(len(self._used) + _SKIPPED + 1):
            offset, self._next = self._next, self._next + 1
            if self._next >= self._count:
                self._next = _SKIPPED
            if offset < self._count and offset not in self._used:
                self._used.add(offset)
                return str(self._make(self._first + offset))
        return ""

    def mark(self, address: str) -> None:
        """Mark an address as used."""
        self._used.add(self._offset(address))

    def release(self, address: str) -> None:
        """Release an address."""
        self._used.discard(self._offset(address))

    def __contains__(self, address: str) -> bool:
        try:
            return 0 <= self._offset(address) < self._count
        except ValueError:
            return False

    def _offset(self, address: str) -> int:
        found = ipaddress.ip_address(address)
        if type(found) is not self._make:
            raise ValueError(f"{address} is of the other family")
        return int(found) - self._first


class Addresses:
    """The addresses by holder and range. Without known ranges the `default` one is used."""

    def __init__(self, default: str) -> None:
        self._default = default
        self._ranges: dict[str, Range] = {}
        self._held: dict[Hashable, tuple[tuple[str, str], ...]] = {}

    def of(self, holder: Hashable, networks: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the addresses of a holder, one per network, allocated if necessary; empty if a network is
        exhausted.
        """
        held = self._held.get(holder)
        if held is not None and tuple(network for network, _ in held) != (tuple(networks) or (self._default,)):
            self.release(holder)  # it is another one, of another node, by now
            held = None
        if held is None:
            taken = tuple((network, self._range(network).take()) for network in networks or (self._default,))
            if not all(address for _, address in taken):
                self._give_back(taken)
                return ()
            held = self._held[holder] = taken
        return tuple(address for _, address in held)

    def mark(self, holder: Hashable, addresses: Iterable[str], networks: Sequence[str] = ()) -> None:
        """Record the addresses that a holder already has in these networks."""
        ranges = {network: self._range(network) for network in networks or (self._default,)}
        held = tuple((net, one) for one in addresses for net, among in ranges.items() if one in among)
        for network, address in held:
            self._ranges[network].mark(address)
        if held and holder not in self._held:
            self._held[holder] = held

    def release(self, holder: Hashable) -> None:
        """Release the addresses of a holder."""
        self._give_back(self._held.pop(holder, ()))

    def _give_back(self, held: tuple[tuple[str, str], ...]) -> None:
        for network, address in held:
            if address:
                self._ranges[network].release(address)

    def _range(self, network: str) -> Range:
        found = self._ranges.get(network)
        if found is None:
            found = self._ranges[network] = Range(network)
        return found
