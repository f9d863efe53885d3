"""What a supervisor and its processes tell each other, over a pair of sockets for each."""

from typing import NamedTuple

import msgspec


class Place(msgspec.Struct, frozen=True):
    """The place of a process: as its only argument before the flags, as JSON. `number` is None for the owner of the
    store. `control`, `page` and `listener` are descriptors: of the socket to the supervisor, of the page of the newest
    revision, and of what listens: for clients, or for those who use the store, who connect at `path`; it is empty where
    nobody owns the store.
    """

    number: int | None
    count: int
    control: int
    page: int
    listener: int
    path: str

    @property
    def name(self) -> str:
        """Return what the process is called."""
        return "store" if self.number is None else f"worker-{self.number}"


class FamilyReport(NamedTuple):
    """A family of metrics with its samples: of each its name, labels and value."""

    name: str
    shown: str
    help: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]


class Begin(msgspec.Struct, tag=1, array_like=True):
    """To a worker: what it needs is there."""


class Ready(msgspec.Struct, tag=2, array_like=True):
    """To the supervisor: the process does its work."""


class Wanted(msgspec.Struct, tag=3, array_like=True):
    """A page of metrics is asked for: of one process, or by it of all."""

    number: int
    page: str


class Report(msgspec.Struct, tag=4, array_like=True):
    """The families of that page: of one process, or of all."""

    number: int
    families: list[FamilyReport]


class Beat(msgspec.Struct, tag=5, array_like=True):
    """To the supervisor, every second: the event loop of the process goes round."""


Message = Begin | Ready | Wanted | Report | Beat
BEAT = 1.0
"""Seconds from one beat to the next."""
decode = msgspec.msgpack.Decoder(Message).decode
