"""Who holds what of the things of which there is one each: derived from what is stored and what is being written."""

from collections.abc import Callable, Mapping

Item = int | str


class Allocator:
    """Holders by item; pure but for `pending(key)`, which says whether a write of that holder is under way.

    A promise is made directly before the write that makes it true is submitted, and is worth something only while
    that write is under way. So nothing has to be taken back when a write fails. `kept` are items that only ever go
    to the one holder named.
    """

    def __init__(self, pending: Callable[[str], bool], kept: Mapping[Item, str] | None = None) -> None:
        self._pending = pending
        self._kept = kept or {}
        self._held: dict[str, tuple[Item, ...]] = {}
        self._holders: dict[Item, str] = {}
        self._promised: dict[str, tuple[Item, ...]] = {}
        self._expecting: dict[Item, str] = {}

    def note(self, key: str, items: tuple[Item, ...]) -> None:
        """What is stored of `key` holds these now; nothing when it is gone."""
        self._forget_promise(key)
        for item in self._held.pop(key, ()):
            if self._holders.get(item) == key:
                del self._holders[item]
        if items:
            self._held[key] = items
            self._holders.update(dict.fromkeys(items, key))

    def reserve(self, key: str, items: tuple[Item, ...]) -> None:
        """The write of `key` that is submitted next makes it the holder of these."""
        for broken in [other for other in self._promised if not self._pending(other)]:
            self._forget_promise(broken)
        self._forget_promise(key)
        self._promised[key] = items
        self._expecting.update(dict.fromkeys(items, key))

    def is_free(self, item: Item, key: str) -> bool:
        """Whether `key` may have an item: nobody else has it, or is about to."""
        if self._kept.get(item, key) != key or self._holders.get(item, key) != key:
            return False
        expecting = self._expecting.get(item, key)
        return expecting == key or not self._pending(expecting)

    def holds(self, item: Item, key: str) -> bool:
        """Whether an item is stored as that of `key`."""
        return self._holders.get(item) == key

    def _forget_promise(self, key: str) -> None:
        for item in self._promised.pop(key, ()):
            if self._expecting.get(item) == key:
                del self._expecting[item]
