"""Numbers given out by chance: the lower band of a range is left, while there is room, to who asks by number."""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network


@dataclass(frozen=True, slots=True)
class Range:
    """`size` numbers from `first` on, the lowest `band` of which are drawn last (KEP-3070, KEP-3668)."""

    first: int
    size: int
    band: int

    def __contains__(self, number: int) -> bool:
        return 0 <= number - self.first < self.size

    def draw(self, is_free: Callable[[int], bool], below: Callable[[int], int]) -> int | None:
        """Return a free number, looked for onwards from where `below(count)` says, round each band; None when all are
        taken.

        `below` gives a number from 0 to less than what it is asked.
        """
        for start, count in ((self.first + self.band, self.size - self.band), (self.first, self.band)):
            offset = below(count) if count else 0
            for step in range(count):
                number = start + (offset + step) % count
                if is_free(number):
                    return number
        return None


def addresses(network: IPv4Network | IPv6Network) -> Range:
    """Return the addresses of a network but the one that names it and, of version 4, the one that speaks to all."""
    size = network.num_addresses - (2 if network.version == 4 else 1)
    return Range(int(network.network_address) + 1, size, _band(size, size // 16, 256))


def ports(numbers: range) -> Range:
    """Return the ports of a range."""
    return Range(numbers.start, len(numbers), _band(len(numbers), len(numbers) // 32, 128))


def _band(size: int, share: int, most: int) -> int:
    """Return a share of a range within bounds; none of a small range, where nothing would be left to draw from."""
    return 0 if size <= 16 else min(max(16, share), most)
