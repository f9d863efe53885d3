"""A document that is mostly one long array, not yet written: a collection, or the rows of a `Table`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver_stub.kinds.kind import Kind
from apiserver_stub.store.row import Row

Show = Callable[[Row, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Listing:
    """`head` is all of the document but its array, the field `array`, whose elements are the `objects`, each JSON, as
    `show(row, object)` shows them. They are of `kind`, and made of `rows`.
    """

    head: dict[str, Any]
    kind: Kind
    rows: Sequence[Row]
    objects: Sequence[bytes]
    array: str = "items"
    show: Show | None = None

    def elements(self) -> Iterator[bytes]:
        """The elements of the array as JSON, each made when it is asked for."""
        return iter(self.objects) if self.show is None else map(self.show, self.rows, self.objects)
