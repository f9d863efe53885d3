"""Bytes of objects held as pieces, so that similar objects share what they have in common; pure.

Pods of one template, leases of nodes and addresses of services differ in names, times and little else. A template is
found in the first two objects that are alike; others are cut where its pieces are.
"""

from collections import deque
from collections.abc import Callable, Iterable

from apiserver_stub.watch_cache.row import CorruptRow, Row

_SMALLEST, _LARGEST = 256, 16 * 1024  # bytes of objects that are cut
_WORTH = 64  # bytes of a piece that is shared: each takes 41 to be held
_ANCHOR = 16  # bytes at the beginning of a piece by which it is found
_NEAR = 1024  # bytes in which it is looked for: more is hardly ever between two pieces
_ATTEMPTS = 64  # places at which two objects may be alike again after a difference
_MOST = 4  # templates of one resource
_REFINEMENTS = 16  # of one template
_LONGEST_PAUSE = 1024  # objects that are like no other, until one is looked at closely again
_FRESH = 1024  # rows that are held whole, since they were written last


class BytesTemplate:
    """The pieces that objects have in common, in their order; the one of a single object is all of it.

    Most objects have them where the last one had them.
    """

    __slots__ = ("_gaps", "_pieces", "refinements", "size")

    def __init__(self, pieces: Iterable[bytes], refinements: int = 0) -> None:
        self._pieces = [(piece, len(piece)) for piece in pieces]
        self._gaps = [0] * len(self._pieces)  # bytes between each of them and the one before it, in the last object
        self.size = sum(size for _, size in self._pieces)
        self.refinements = refinements

    def cut(self, data: bytes) -> tuple[list[bytes], int]:
        """Return the bytes in pieces, among them those of the template that are there, and how many bytes these are."""
        parts: list[bytes] = []
        at = shared = 0
        gaps, fits, add = self._gaps, data.startswith, parts.append
        for number, (piece, size) in enumerate(self._pieces):
            found = at + gaps[number]
            if not fits(piece, found):
                found = _find(piece, data, at)
                if found < 0:
                    continue
                gaps[number] = found - at
            if found > at:
                add(data[at:found])
            add(piece)
            shared += size
            at = found + size
        if at < len(data):
            add(data[at:])
        return parts, shared

    def refined(self, data: bytes) -> "BytesTemplate":
        """Return what is left of the template that is in the bytes as well."""
        pieces: list[bytes] = []
        at = 0
        for piece, _ in self._pieces:
            start = 0
            while (place := _meet(piece, start, data, at)) is not None:
                start, at = place
                alike = _alike(piece, start, data, at)
                end = start + alike
                last = end if end == len(piece) else piece.rfind(b'"', start, end) + 1  # without a value that differs
                if last - start >= _WORTH:
                    pieces.append(piece[start:last])
                start, at = end, at + alike
        return BytesTemplate(pieces, self.refinements)


def _find(piece: bytes, data: bytes, at: int) -> int:
    """Return where a piece begins that is not far behind a place in the bytes; -1 if there is none."""
    anchor, end = piece[:_ANCHOR], at + _NEAR
    found = data.find(anchor, at, end)
    while found >= 0 and not data.startswith(piece, found):
        found = data.find(anchor, found + 1, end)
    return found


def _meet(piece: bytes, start: int, data: bytes, at: int) -> tuple[int, int] | None:
    """Return where a piece goes on, from a quotation mark at or behind `start`, and the bytes do likewise."""
    for _ in range(_ATTEMPTS):
        anchor = piece[start : start + _ANCHOR]
        if len(anchor) < _ANCHOR:
            return None
        found = data.find(anchor, at, at + _NEAR)
        if found >= 0:
            return start, found
        start = piece.find(b'"', start + 1)
        if start < 0:
            return None
    return None


def _alike(one: bytes, start: int, other: bytes, at: int) -> int:
    """Return how many bytes are the same from there on."""
    low, high = 0, min(len(one) - start, len(other) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[start + low : start + middle], at + low):
            low = middle
        else:
            high = middle - 1
    return low


class Templates:
    """The templates of the objects of one resource, the one that was used last in front."""

    __slots__ = ("_known", "_left", "_pause")

    def __init__(self) -> None:
        self._known: list[BytesTemplate] = []
        self._pause = 1
        self._left = 0  # objects until the next one that is like no other is looked at closely

    def cut(self, data: bytes) -> tuple[bytes, ...] | None:
        """Return the bytes in pieces; None if hardly any of them would be shared."""
        for number, template in enumerate(self._known):
            parts, shared = template.cut(data)
            if 2 * shared < len(data):
                continue
            if number:
                self._known.insert(0, self._known.pop(number))
            if shared < template.size * 7 // 8 and template.refinements < _REFINEMENTS:
                parts = self._refine(0, data) or parts
            return tuple(parts)
        self._left -= 1
        return None if self._left > 0 else self._learn(data)

    def _learn(self, data: bytes) -> tuple[bytes, ...] | None:
        """Look for a template that fits once it is refined; else the object becomes one."""
        for number in range(len(self._known)):
            if parts := self._refine(number, data):
                self._pause, self._left = 1, 0
                return tuple(parts)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._left = self._pause
        self._known = [BytesTemplate([data]), *self._known[: _MOST - 1]]
        return None

    def _refine(self, number: int, data: bytes) -> list[bytes] | None:
        """Refine a template if much is left of it then, and put it in front; return the bytes in its pieces."""
        self._known[number].refinements += 1
        refined = self._known[number].refined(data)
        parts, shared = refined.cut(data)
        if 2 * shared < len(data):
            return None
        del self._known[number]
        self._known.insert(0, refined)
        return parts


class RowPacker:
    """Cuts rows that were not written lately, so that hot ones are at hand as a whole; `cut` is told each of them."""

    def __init__(self, cut: Callable[[Row], None] = lambda _: None) -> None:
        self._cut = cut
        self._fresh: deque[Row] = deque()
        self._templates: dict[str, Templates] = {}

    @property
    def excess(self) -> int:
        """Return how many rows are still to be cut."""
        return max(len(self._fresh) - _FRESH, 0)

    @property
    def has_many(self) -> bool:
        """Return whether there are as many rows as may be whole."""
        return len(self._fresh) >= _FRESH

    def add(self, rows: Iterable[Row]) -> None:
        """Take in rows as they are written."""
        self._fresh.extend(rows)

    def pack(self, count: int) -> None:
        """Cut as many of the oldest rows, if there are too many that are whole."""
        for _ in range(min(count, self.excess)):
            self._pack(self._fresh.popleft())

    def _pack(self, row: Row) -> None:
        if isinstance(row, CorruptRow) or not row.is_whole:
            return
        data = row.data
        if not _SMALLEST <= len(data) <= _LARGEST:
            return
        templates = self._templates.get(row.resource)
        if templates is None:
            templates = self._templates[row.resource] = Templates()
        pieces = templates.cut(data)
        if pieces is not None:
            row.hold(pieces)
            self._cut(row)
