"""Refusals of a read, a write or a file by the store."""

from controller_manager.api import errors


class RevisionConflict(Exception):
    """A row is not, or no longer, at the revision the writer expected: it is at `current` (0: there is none), as of
    `revision` of the storage.
    """

    def __init__(self, resource: str, key: str, current: int, revision: int) -> None:
        super().__init__(f"{resource} {key!r} {f'is at revision {current}' if current else 'does not exist'}")
        self.resource = resource
        self.key = key
        self.current = current
        self.revision = revision


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


class Unknown(Exception):
    """A write failed in such a way that it may still be found after a restart, and could not be taken back."""


class Unusable(Exception):
    """The store's file cannot be used; the message is one sentence for the person who started the server."""
