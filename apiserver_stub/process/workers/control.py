"""The messages between the supervisor and its processes, over one socket pair per process."""

from typing import NamedTuple

import msgspec


class Place(msgspec.Struct, frozen=True):
    """The role of a process, passed as its first argument in JSON. `number` is None for the owner of the store.
    `control`, `page` and `listener` are descriptors: of the socket to the supervisor, of the shared page with the
    newest revision, and of the listening socket: for clients, or for users of the store at `path`. `path`
    is empty if no process owns the store.
    """

    number: int | None
    count: int
    control: int
    page: int
    listener: int
    path: str

    @property
    def name(self) -> str:
        """Return the name of the process."""
        return "store" if self.number is None else f"worker-{self.number}"


class FamilyReport(NamedTuple):
    """A family of metrics with its samples: of each its name, labels and value."""

    name: str
    shown: str
    help: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]


class Begin(msgspec.Struct, tag=1, array_like=True):
    """To a worker: its dependencies are ready."""


class Ready(msgspec.Struct, tag=2, array_like=True):
    """To the supervisor: the process does its work."""


class Wanted(msgspec.Struct, tag=3, array_like=True):
    """Requests a page of metrics: of one process, or of all processes."""

    number: int
    page: str


class Report(msgspec.Struct, tag=4, array_like=True):
    """The metric families of that page: of one process, or of all."""

    number: int
    families: list[FamilyReport]


class Beat(msgspec.Struct, tag=5, array_like=True):
    """To the supervisor, every second: the event loop of the process is alive."""


Message = Begin | Ready | Wanted | Report | Beat
BEAT = 1.0
"""Seconds from one beat to the next."""
decode = msgspec.msgpack.Decoder(Message).decode
