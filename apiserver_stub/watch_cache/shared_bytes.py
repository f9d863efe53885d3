"""Objects held as pieces of bytes, so that similar objects share memory. Pure.

Pods of one template, leases of nodes and endpoints of services differ only in names, times and a few values. A template
is learned from two similar objects; further objects are cut at its pieces.
"""

from collections import deque
from collections.abc import Callable, Iterable

from apiserver_stub.watch_cache.row import CorruptRow, Row

_SMALLEST, _LARGEST = 256, 16 * 1024  # bytes; only objects of this size are cut
_WORTH = 64  # bytes of a shared piece at least; each piece has 41 bytes of overhead
_ANCHOR = 16  # bytes at the start of a piece that are searched for
_NEAR = 1024  # bytes that are searched; gaps between pieces are hardly ever larger
_ATTEMPTS = 64  # positions after a difference at which two objects may match again
_MOST = 4  # templates per resource
_REFINEMENTS = 16  # refinements per template
_LONGEST_PAUSE = 1024  # objects without a template until one is examined again, at most
_FRESH = 1024  # recently written rows that are held whole


class BytesTemplate:
    """The pieces that objects have in common, in order. The template of a single object is the whole object.

    Most objects have the pieces at the same positions as the previous object.
    """

    __slots__ = ("_gaps", "_pieces", "refinements", "size")

    def __init__(self, pieces: Iterable[bytes], refinements: int = 0) -> None:
        self._pieces = [(piece, len(piece)) for piece in pieces]
        self._gaps = [0] * len(self._pieces)  # bytes before each piece in the last object
        self.size = sum(size for _, size in self._pieces)
        self.refinements = refinements

    def cut(self, data: bytes) -> tuple[list[bytes], int]:
        """Return the bytes in pieces, including the template's pieces that occur, and the total bytes of those."""
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
        """Return the template reduced to what the bytes contain as well."""
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
    """Return the start of a piece near a position in the bytes; -1 if it is not found."""
    anchor, end = piece[:_ANCHOR], at + _NEAR
    found = data.find(anchor, at, end)
    while found >= 0 and not data.startswith(piece, found):
        found = data.find(anchor, found + 1, end)
    return found


def _meet(piece: bytes, start: int, data: bytes, at: int) -> tuple[int, int] | None:
    """Return where the piece and the bytes match again, at a quotation mark at or after `start`."""
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
    """Return how many bytes are equal from these positions on."""
    low, high = 0, min(len(one) - start, len(other) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[start + low : start + middle], at + low):
            low = middle
        else:
            high = middle - 1
    return low


class Templates:
    """The templates of one resource, most recently used first."""

    __slots__ = ("_known", "_left", "_pause")

    def __init__(self) -> None:
        self._known: list[BytesTemplate] = []
        self._pause = 1
        self._left = 0  # objects until the next one without a template is examined

    def cut(self, data: bytes) -> tuple[bytes, ...] | None:
        """Return the bytes in pieces; None if too few of them would be shared."""
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
        """Refine a template so that it fits; otherwise the object becomes a new template."""
        for number in range(len(self._known)):
            if parts := self._refine(number, data):
                self._pause, self._left = 1, 0
                return tuple(parts)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._left = self._pause
        self._known = [BytesTemplate([data]), *self._known[: _MOST - 1]]
        return None

    def _refine(self, number: int, data: bytes) -> list[bytes] | None:
        """Refine a template, if enough of it is left, and move it to the front. Return the bytes in its pieces."""
        self._known[number].refinements += 1
        refined = self._known[number].refined(data)
        parts, shared = refined.cut(data)
        if 2 * shared < len(data):
            return None
        del self._known[number]
        self._known.insert(0, refined)
        return parts


class RowPacker:
    """Cuts rows that were not written recently; recent rows stay whole for fast access. `cut` is called with each cut
    row.
    """

    def __init__(self, cut: Callable[[Row], None] = lambda _: None) -> None:
        self._cut = cut
        self._fresh: deque[Row] = deque()
        self._templates: dict[str, Templates] = {}

    @property
    def excess(self) -> int:
        """Return the number of rows still to be cut."""
        return max(len(self._fresh) - _FRESH, 0)

    @property
    def has_many(self) -> bool:
        """Return whether the maximum number of whole rows is reached."""
        return len(self._fresh) >= _FRESH

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows as they are written."""
        self._fresh.extend(rows)

    def pack(self, count: int) -> None:
        """Cut up to `count` of the oldest rows if too many are whole."""
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
