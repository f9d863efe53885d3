"""An ordered map with string keys and free snapshots: writers copy only the chunk they change."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, Self, TypeVar

V = TypeVar("V")

_FULL = 512  # a larger chunk is split
_SPARSE = 64  # a smaller chunk is merged with its neighbor


class _Chunk(Generic[V]):
    """A run of neighboring keys. Only the map that owns it may change it."""

    __slots__ = ("keys", "owner", "values")

    def __init__(self, owner: object, keys: list[str], values: list[V]) -> None:
        self.owner = owner
        self.keys = keys
        self.values = values


class View(Generic[V]):
    """The read interface of an ordered map; a plain `View` never changes.

    `_bounds[i]` is not greater than any key of chunk `i` and greater than every key of chunk `i - 1`. `_bounds[0]` is
    the empty string, and there is always at least one chunk.
    """

    __slots__ = ("_bounds", "_chunks", "_size")

    def __init__(self, chunks: list[_Chunk[V]], bounds: list[str], size: int) -> None:
        self._chunks = chunks
        self._bounds = bounds
        self._size = size

    def __len__(self) -> int:
        return self._size

    def get(self, key: str) -> V | None:
        """Return the value of `key`, or None."""
        chunk = self._chunks[bisect_right(self._bounds, key) - 1]
        keys = chunk.keys
        at = bisect_left(keys, key)
        return chunk.values[at] if at < len(keys) and keys[at] == key else None

    def items(self, after: str = "", prefix: str = "") -> Iterator[V]:
        """Yield the values of keys greater than `after` that begin with `prefix`, in key order."""
        first, start = self._start(after, prefix)
        last, stop = self._stop(prefix)
        if (first, start) >= (last, stop):
            return
        if first == last:
            yield from self._chunks[first].values[start:stop]
            return
        yield from self._chunks[first].values[start:]
        for index in range(first + 1, last):
            yield from self._chunks[index].values
        yield from self._chunks[last].values[:stop]

    def count(self, after: str = "", prefix: str = "") -> int:
        """Return the number of values of `items` without visiting them."""
        if not after and not prefix:
            return self._size
        first, start = self._start(after, prefix)
        last, stop = self._stop(prefix)
        if (first, start) >= (last, stop):
            return 0
        return sum(len(self._chunks[index].keys) for index in range(first, last)) - start + stop

    def _start(self, after: str, prefix: str) -> tuple[int, int]:
        """Return the chunk and offset of the first key in range."""
        if not after and not prefix:
            return 0, 0
        key, find = (after, bisect_right) if after >= prefix else (prefix, bisect_left)
        index = bisect_right(self._bounds, key) - 1
        return index, find(self._chunks[index].keys, key)

    def _stop(self, prefix: str) -> tuple[int, int]:
        """Return the chunk and offset after the last key in range."""
        end = behind(prefix)
        if not end:
            return len(self._chunks) - 1, len(self._chunks[-1].keys)
        index = bisect_right(self._bounds, end) - 1
        return index, bisect_left(self._chunks[index].keys, end)


class OrderedMap(View[V]):
    """A map in key order: `put` and `remove` change one chunk, `snapshot` copies nothing."""

    __slots__ = ("_owner", "_shared")

    def __init__(self, pairs: Iterable[tuple[str, V]] = ()) -> None:
        """`pairs` must be sorted by key without duplicates."""
        self._owner = object()
        self._shared = False
        keys, values = [], []
        for key, value in pairs:
            keys.append(key)
            values.append(value)
        half = _FULL // 2
        chunks = [
            _Chunk(self._owner, keys[at : at + half], values[at : at + half]) for at in range(0, len(keys), half)
        ] or [_Chunk[V](self._owner, [], [])]
        super().__init__(chunks, ["", *(chunk.keys[0] for chunk in chunks[1:])], len(keys))

    @classmethod
    def copy(cls, view: View[V]) -> Self:
        """Return a map that starts as `view` and shares unchanged chunks with it."""
        made = cls()
        made._chunks, made._bounds, made._size = view._chunks, view._bounds, view._size
        made._shared = True
        return made

    def snapshot(self) -> View[V]:
        """Return an immutable view of the current map."""
        self._owner = object()
        self._shared = True
        return View(self._chunks, self._bounds, self._size)

    def put(self, key: str, value: V) -> None:
        """Set the value of `key`."""
        index, chunk = self._own(key)
        at = bisect_left(chunk.keys, key)
        if at < len(chunk.keys) and chunk.keys[at] == key:
            chunk.values[at] = value
            return
        chunk.keys.insert(at, key)
        chunk.values.insert(at, value)
        self._size += 1
        if len(chunk.keys) > _FULL:
            self._halve(index, chunk)

    def remove(self, key: str) -> None:
        """Remove `key`, if it is there."""
        index, chunk = self._own(key)
        at = bisect_left(chunk.keys, key)
        if at == len(chunk.keys) or chunk.keys[at] != key:
            return
        del chunk.keys[at], chunk.values[at]
        self._size -= 1
        if len(chunk.keys) < _SPARSE:
            self._join(index)
            self._join(index - 1)

    def _own(self, key: str) -> tuple[int, _Chunk[V]]:
        """Return the chunk of `key`, copied first if this map does not own it."""
        if self._shared:
            self._chunks, self._bounds, self._shared = self._chunks.copy(), self._bounds.copy(), False
        index = bisect_right(self._bounds, key) - 1
        chunk = self._chunks[index]
        if chunk.owner is not self._owner:
            chunk = self._chunks[index] = _Chunk(self._owner, chunk.keys.copy(), chunk.values.copy())
        return index, chunk

    def _halve(self, index: int, chunk: _Chunk[V]) -> None:
        half = len(chunk.keys) // 2
        upper = _Chunk(self._owner, chunk.keys[half:], chunk.values[half:])
        del chunk.keys[half:], chunk.values[half:]
        self._chunks.insert(index + 1, upper)
        self._bounds.insert(index + 1, upper.keys[0])

    def _join(self, index: int) -> None:
        """Merge chunk `index` with the next one, if both exist and the result would not be split soon."""
        if not 0 <= index < len(self._chunks) - 1:
            return
        left, right = self._chunks[index], self._chunks[index + 1]
        if len(left.keys) + len(right.keys) > _FULL // 2:
            return
        self._chunks[index] = _Chunk(self._owner, left.keys + right.keys, left.values + right.values)
        del self._chunks[index + 1], self._bounds[index + 1]


def behind(prefix: str) -> str:
    """Return the smallest string greater than every string that begins with `prefix`; empty if there is none."""
    stem = prefix.rstrip("\U0010ffff")
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else ""
