"""What an informer holds and how fresh that is, as plain data for people and pages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InformerState:
    """One local copy: `age` is the seconds since anything was heard from the server, the counts are since the start.

    `unreadable` names the objects that are left out because they do not fit their type, each with the reason.
    """

    selection: str
    objects: int
    synced: bool
    age: float
    revision: str
    lists: int
    watches: int
    failures: int
    last_error: str
    unreadable: tuple[str, ...] = ()
