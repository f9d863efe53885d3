"""The messages between the owner of a storage and its other users, and connections that carry them.

A message is its length, four bytes, and MessagePack. Requests have numbers, by which they are answered in any order;
what a watch tells comes in between, and what a transaction made comes before its answer.
"""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Generic, TypeVar, cast

import msgspec

from apiserver_stub.storage.interface import Compare, Record, Write
from apiserver_stub.storage.pipeline import turn, wake

_LENGTH = Struct("<I")
_LONGEST = 1 << 30  # bytes of a message
_PAUSED_AT = 1 << 20  # bytes that are written and not taken

Received = TypeVar("Received")


class Transaction(msgspec.Struct, tag=1, array_like=True, gc=False):
    """`Storage.txn`; answered by `Done`."""

    number: int
    writes: list[Write]
    compares: list[Compare]


class Get(msgspec.Struct, tag=2, array_like=True, gc=False):
    """`Storage.get`; answered by `Portion` of one record or none."""

    number: int
    resource: str
    key: str


class List(msgspec.Struct, tag=3, array_like=True, gc=False):
    """`Storage.list`; answered by any number of `Portion`s."""

    number: int
    resource: str | None
    at: int | None


class Oldest(msgspec.Struct, tag=4, array_like=True, gc=False):
    """`Storage.oldest_revision`; answered by `Done`."""

    number: int


class WatchRequest(msgspec.Struct, tag=5, array_like=True, gc=False):
    """`Storage.watch`; answered by `Done` once what was there is told."""

    number: int
    after: int


class Unwatch(msgspec.Struct, tag=6, array_like=True, gc=False):
    """The end of the watch of this number; not answered."""

    number: int


class Compact(msgspec.Struct, tag=7, array_like=True, gc=False):
    """`Storage.compact`; answered by `Done`."""

    number: int
    revision: int


StorageRequest = Transaction | Get | List | Oldest | WatchRequest | Unwatch | Compact


class Done(msgspec.Struct, tag=1, array_like=True, gc=False):
    """A request was carried out; its revision, if it has one."""

    number: int
    revision: int = 0


class Portion(msgspec.Struct, tag=2, array_like=True, gc=False):
    """Some of the rows that were asked for, and whether more follow."""

    number: int
    revision: int
    more: bool
    records: list[Record]


class Refused(msgspec.Struct, tag=3, array_like=True, gc=False):
    """A request was not carried out. `reason` says which error that is, `numbers` are its revisions."""

    number: int
    reason: str
    message: str = ""
    resource: str = ""
    key: str = ""
    numbers: tuple[int, int] = (0, 0)


class ChangeMessage(msgspec.Struct, tag=4, array_like=True, gc=False):
    """What a watch tells."""

    number: int
    revision: int
    records: list[Record]


class WatchEnded(msgspec.Struct, tag=5, array_like=True, gc=False):
    """A watch tells nothing more."""

    number: int
    why: str


class OwnerState(msgspec.Struct, tag=6, array_like=True, gc=False):
    """How the owner is; the first message, and again when that is otherwise."""

    trouble: str


Reply = Done | Portion | Refused | ChangeMessage | WatchEnded | OwnerState


class EncodedChangeMessage(msgspec.Struct, tag=4, array_like=True, gc=False):
    """`ChangeMessage`, its records encoded once for all."""

    number: int
    revision: int
    records: msgspec.Raw


encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(StorageRequest).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


class MessageReader(Generic[Received]):
    """Cuts what is received into messages."""

    def __init__(self, decode: Callable[[memoryview], Received]) -> None:
        self._decode = decode
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Received]:
        """Return the messages that are whole now. Raises `ValueError` for what is none."""
        whole: bytes | bytearray = data
        if self._rest:
            self._rest += data
            whole = self._rest
        found, at = [], 0
        with memoryview(whole) as view:
            while len(view) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, at)
                if length > _LONGEST:
                    raise ValueError(f"a message of {length} bytes")
                end = at + _LENGTH.size + length
                if end > len(view):
                    break
                found.append(self._decode(view[at + _LENGTH.size : end]))
                at = end
        if whole is data:
            self._rest += data[at:]
        else:
            del self._rest[:at]
        return found


class MessageConnection(asyncio.Protocol, Generic[Received]):
    """One end of a connection: `take` is handed what comes, `lost` is told once that nothing more will.

    What is sent in one turn of the loop is written together.
    """

    def __init__(
        self,
        decode: Callable[[memoryview], Received],
        take: Callable[[Received], None],
        lost: Callable[[], None],
        made: "Callable[[MessageConnection[Received]], None]" = lambda _: None,
    ) -> None:
        self._reader = MessageReader(decode)
        self._take = take
        self._lost = lost
        self._made = made
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._size = 0  # bytes of that
        self._full = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def unsent(self) -> int:
        """Return how many bytes the other side has not taken, but for what the kernel holds."""
        return self._size + (self._transport.get_write_buffer_size() if self._transport else 0)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; over a connection that is lost it goes nowhere."""
        if self._transport is None:
            return
        body = encode(message)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += (_LENGTH.pack(len(body)), body)
        self._size += len(body)

    async def drained(self) -> None:
        """Wait until the other side has taken most of what was sent. Raises `ConnectionResetError` if it is lost."""
        while self._unsent or self._full:
            if self._transport is None:
                raise ConnectionResetError("the connection is lost")
            if self._unsent:
                self._flush()
            else:
                await turn(self._waiting)

    def hold(self, held: bool) -> None:
        """Receive nothing for the time being, or go on."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if held else self._transport.resume_reading)()

    def close(self) -> None:
        """Send what is to be sent, and end."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_PAUSED_AT)
        self._made(self)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except (ValueError, msgspec.MsgspecError):  # none of ours
            self.abort()

    def pause_writing(self) -> None:
        """Called by the loop."""
        self._full = True

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._full = False
        wake(self._waiting)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self._transport = None
        self._unsent.clear()
        self._size = 0
        self._lost()
        wake(self._waiting)

    def _flush(self) -> None:
        unsent, self._unsent, self._size = self._unsent, [], 0
        if unsent and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(unsent))
