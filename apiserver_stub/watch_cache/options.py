"""The options of a watch: which objects, from where on, and how it ends."""

from dataclasses import dataclass, field

from apiserver_stub.watch_cache.row import Change, Row
from controller_manager.api.selectors import FieldSelector, LabelSelector


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """`start` is the revision after which changes are wanted; None begins with the current state as ADDED events.

    `namespace` and `name` are empty for any. `bookmarks` asks for one about every minute and one at the end,
    `initial_end` for the one that marks the end of the initial state. `timeout` is in seconds.
    """

    namespace: str = ""
    name: str = ""
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)
    start: int | None = None
    bookmarks: bool = False
    initial_end: bool = False
    timeout: float | None = None

    @property
    def everything(self) -> bool:
        """Return whether no object of the resource is left out."""
        return not (self.namespace or self.name) and self.labels.empty and self.fields.empty


class Filter:
    """Decides what a watcher with a selector sees of a row or a change."""

    __slots__ = ("_fields", "_labels", "_name", "prefix")

    def __init__(self, options: WatchOptions) -> None:
        self.prefix = f"{options.namespace}/" if options.namespace else ""
        self._name = options.name
        self._labels = None if options.labels.empty else options.labels
        self._fields = None if options.fields.empty else options.fields

    def selects(self, row: Row) -> bool:
        """Return whether the row is wanted, its namespace included."""
        return self._in_scope(row) and self._matches(row)

    def event(self, change: Change) -> str:
        """Return the type of event this change is to the watcher; empty if it is none.

        An object that begins to match is ADDED and one that ceases to match is DELETED, whatever else it does.
        """
        if not self._in_scope(change.row):
            return ""
        was = change.before is not None and self._matches(change.before)
        if not change.deleted and self._matches(change.row):
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""

    def _in_scope(self, row: Row) -> bool:
        return row.key.startswith(self.prefix) and (not self._name or row.name == self._name)

    def _matches(self, row: Row) -> bool:
        if self._labels is not None and not self._labels.matches(row.labels):
            return False
        return self._fields is None or self._fields.matches(row.field)


def plain_event(change: Change) -> str:
    """Return the type of event a change is to a watcher of everything."""
    if change.deleted:
        return "DELETED"
    return "MODIFIED" if change.before is not None else "ADDED"
