"""Randomness: identifiers, jitter and secrets. It is reproducible if the running loop has a seeded source."""

import os
import random

from controller_manager.common.base.clock import loop_served

# Kubernetes omits vowels and similar characters in generated names (apimachinery, util/rand).
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


_DRAWN = 16  # bytes of an identifier
_AT_ONCE = 256  # identifiers whose bytes are read with one system call


class SystemRandom(random.SystemRandom):
    """The operating system's randomness. Bytes for names are read in advance for many names: a system call lets other
    threads run first. Bytes for secrets are never read in advance.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn: list[bytes] = []
        os.register_at_fork(after_in_child=self._drawn.clear)

    def getrandbits(self, k: int) -> int:
        """Return `k` random bits. No bits are used twice, in any thread or process."""
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
    """A source of randomness: `SystemRandom` in production, a seeded `random.Random` in tests."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def uid(self) -> str:
        """Return a version 4 UUID in its canonical form (RFC 9562, section 5.4)."""
        bits = self._source.getrandbits(128)
        bits = bits & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (2 << 62)
        h = f"{bits:032x}"
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def suffix(self, length: int = 5) -> str:
        """Return characters to append to `metadata.generateName`."""
        letters, count = _SUFFIX_ALPHABET, len(_SUFFIX_ALPHABET)
        choices = count**length
        size = choices.bit_length()
        drawn = choices
        while drawn >= choices:  # all letters at once: each number from the system is a system call
            drawn = self._source.getrandbits(size)
        suffix = ""
        for _ in range(length):
            drawn, place = divmod(drawn, count)
            suffix += letters[place]
        return suffix

    def token(self, size: int = 32) -> str:
        """Return `size` random bytes in hexadecimal, for secrets."""
        return self._source.randbytes(size).hex()

    def bytes(self, size: int) -> bytes:
        """Return `size` random bytes."""
        return self._source.randbytes(size)

    def happens(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._source.random() < probability

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`."""
        return self._source.uniform(low, high)


def seeded(text: str) -> Random:
    """Return a source that is seeded with a text."""
    return Random(random.Random(text))  # noqa: S311 - names, no secrets


_SYSTEM = Random(SystemRandom())


def random_source() -> Random:
    """Return the running loop's seeded source if it has one, otherwise the operating system's."""
    found = getattr(loop_served(), "random", None)
    return found if isinstance(found, Random) else _SYSTEM
