"""Why the store refuses a read, a write or a file."""

from typing import TYPE_CHECKING

from controller_manager.api import errors

if TYPE_CHECKING:
    from apiserver_stub.store.row import CorruptRow, Row


class RevisionConflict(Exception):
    """The row is not, or no longer, at the revision the writer expected; `current` is what there is now."""

    def __init__(self, current: "Row | None") -> None:
        super().__init__(f"the row is at revision {current.revision}" if current else "the row does not exist")
        self.current = current


class TooOld(errors.Expired):
    """The history since that revision is no longer held; what is held begins behind `oldest`."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")


class TooNew(errors.Timeout):
    """No revision that high is visible yet."""

    def __init__(self, revision: int, current: int) -> None:
        message = "Too large resource version"
        cause = errors.Cause(reason="ResourceVersionTooLarge", message=message)
        details = errors.Details(causes=(cause,), retry_after_seconds=1)
        super().__init__(f"{message}: {revision}, current: {current}", details)


class Corrupt(errors.InternalError):
    """What the store holds of an object is no object, and so cannot be read."""

    def __init__(self, row: "CorruptRow") -> None:
        plural, _, group = row.resource.partition(".")
        details = errors.Details(name=row.name, group=group, kind=plural)
        where = f"{row.resource} {row.key!r} at revision {row.revision}"
        super().__init__(f"corrupt object: what the store holds of {where} cannot be read: {row.decode_error}", details)
        self.row = row


class Unknown(Exception):
    """A write failed in such a way that it may still be found after a restart, and could not be taken back."""


class Unusable(Exception):
    """The store's file cannot be used; the message is one sentence for the person who started the server."""
