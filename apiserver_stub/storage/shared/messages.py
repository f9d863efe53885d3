"""The messages between the owner of a storage and its clients, and their connections.

A message is its length (four bytes) and MessagePack. Requests are numbered and may be answered in any order. Watch
messages come in between; the changes of a transaction come before its answer.
"""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Generic, TypeVar, cast

import msgspec

from apiserver_stub.storage.interface import Compare, Record, Write
from apiserver_stub.storage.pipeline import turn, wake

_LENGTH = Struct("<I")
_LONGEST = 1 << 30  # maximum bytes of a message
_PAUSED_AT = 1 << 20  # unsent bytes after which writing pauses

Received = TypeVar("Received")


class Transaction(msgspec.Struct, tag=1, array_like=True, gc=False):
    """`Storage.txn`; answered by `Done`."""

    number: int
    writes: list[Write]
    compares: list[Compare]


class Get(msgspec.Struct, tag=2, array_like=True, gc=False):
    """`Storage.get`; answered by a `Portion` of one record or none."""

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
    """`Storage.watch`; answered by `Done` once the existing changes are sent."""

    number: int
    after: int


class Unwatch(msgspec.Struct, tag=6, array_like=True, gc=False):
    """Ends the watch of this number; not answered."""

    number: int


class Compact(msgspec.Struct, tag=7, array_like=True, gc=False):
    """`Storage.compact`; answered by `Done`."""

    number: int
    revision: int


StorageRequest = Transaction | Get | List | Oldest | WatchRequest | Unwatch | Compact


class Done(msgspec.Struct, tag=1, array_like=True, gc=False):
    """A request was successful; with its revision, if it has one."""

    number: int
    revision: int = 0


class Portion(msgspec.Struct, tag=2, array_like=True, gc=False):
    """Some of the requested rows, and whether more follow."""

    number: int
    revision: int
    more: bool
    records: list[Record]


class Refused(msgspec.Struct, tag=3, array_like=True, gc=False):
    """A request failed. `reason` identifies the error, `numbers` are its revisions."""

    number: int
    reason: str
    message: str = ""
    resource: str = ""
    key: str = ""
    numbers: tuple[int, int] = (0, 0)


class ChangeMessage(msgspec.Struct, tag=4, array_like=True, gc=False):
    """Changes of a watch."""

    number: int
    revision: int
    records: list[Record]


class WatchEnded(msgspec.Struct, tag=5, array_like=True, gc=False):
    """A watch has ended."""

    number: int
    why: str


class OwnerState(msgspec.Struct, tag=6, array_like=True, gc=False):
    """The health of the owner; the first message, and sent again when it changes."""

    problem: str


Reply = Done | Portion | Refused | ChangeMessage | WatchEnded | OwnerState


class EncodedChangeMessage(msgspec.Struct, tag=4, array_like=True, gc=False):
    """`ChangeMessage` with records encoded once for all clients."""

    number: int
    revision: int
    records: msgspec.Raw


encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(StorageRequest).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


class MessageReader(Generic[Received]):
    """Splits received data into messages."""

    def __init__(self, decode: Callable[[memoryview], Received]) -> None:
        self._decode = decode
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Received]:
        """Return the complete messages. Raises `ValueError` if the data is invalid."""
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
    """One end of a connection. `take` gets each message; `lost` is called once when the connection ends.

    Messages sent in one iteration of the loop are written together.
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
        self._size = 0  # bytes of the unsent messages
        self._full = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def unsent(self) -> int:
        """Return the unsent bytes, without those in the kernel's buffer."""
        return self._size + (self._transport.get_write_buffer_size() if self._transport else 0)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. It is dropped if the connection is lost."""
        if self._transport is None:
            return
        body = encode(message)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += (_LENGTH.pack(len(body)), body)
        self._size += len(body)

    async def drained(self) -> None:
        """Wait until the peer has received most of the data. Raises `ConnectionResetError` if the connection is
        lost.
        """
        while self._unsent or self._full:
            if self._transport is None:
                raise ConnectionResetError("the connection is lost")
            if self._unsent:
                self._flush()
            else:
                await turn(self._waiting)

    def hold(self, held: bool) -> None:
        """Pause or resume receiving."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if held else self._transport.resume_reading)()

    def close(self) -> None:
        """Send pending messages and close."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
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
        except (ValueError, msgspec.MsgspecError):  # not a valid message
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
