"""Randomness: identifiers, jitter and secrets, reproducible when the running loop carries a seeded source."""

import os
import random

from controller_manager.common.base.clock import loop_served

# Kubernetes leaves out vowels and look-alikes in generated names (apimachinery, util/rand).
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


_DRAWN = 16  # bytes, as many as an identifier takes
_AT_ONCE = 256  # of these, drawn with one call of the system


class SystemRandom(random.SystemRandom):
    """The operating system's randomness. What names take of it is drawn for many at once: a call of the system lets
    other threads go first. Secrets are not kept here before they are asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn: list[bytes] = []
        os.register_at_fork(after_in_child=self._drawn.clear)

    def getrandbits(self, k: int) -> int:
        """Return so many bits, each drawn once, whichever thread and process asks."""
        if k > 8 * _DRAWN:
            return super().getrandbits(k)
        try:
            drawn = self._drawn.pop()
        except IndexError:
            data = os.urandom(_DRAWN * _AT_ONCE)
            pieces = [data[at : at + _DRAWN] for at in range(0, len(data), _DRAWN)]
            drawn = pieces.pop()
            self._drawn.extend(pieces)
        return int.from_bytes(drawn) >> (8 * _DRAWN - k)


class Random:
    """One source of randomness; `SystemRandom` in production, a seeded `random.Random` in tests."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def uid(self) -> str:
        """A version 4 UUID in its canonical form (RFC 9562, section 5.4)."""
        bits = self._source.getrandbits(128)
        bits = bits & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (2 << 62)
        h = f"{bits:032x}"
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def suffix(self, length: int = 5) -> str:
        """Characters to append to `metadata.generateName`."""
        letters, count = _SUFFIX_ALPHABET, len(_SUFFIX_ALPHABET)
        choices = count**length
        size = choices.bit_length()
        drawn = choices
        while drawn >= choices:  # all letters at once: each number of the system's is a system call
            drawn = self._source.getrandbits(size)
        suffix = ""
        for _ in range(length):
            drawn, place = divmod(drawn, count)
            suffix += letters[place]
        return suffix

    def token(self, size: int = 32) -> str:
        """`size` random bytes in hexadecimal, for secrets."""
        return self._source.randbytes(size).hex()

    def bytes(self, size: int) -> bytes:
        """`size` random bytes."""
        return self._source.randbytes(size)

    def happens(self, probability: float) -> bool:
        """Whether something happens that does so with this probability."""
        return self._source.random() < probability

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return self._source.uniform(low, high)


def seeded(text: str) -> Random:
    """A source that always draws the same for the same text."""
    return Random(random.Random(text))  # noqa: S311 - names, no secrets


_SYSTEM = Random(SystemRandom())


def random_source() -> Random:
    """The running loop's seeded source if it has one, otherwise the operating system's."""
    found = getattr(loop_served(), "random", None)
    return found if isinstance(found, Random) else _SYSTEM
