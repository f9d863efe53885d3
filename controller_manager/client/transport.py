"""The seam between the client and whatever carries its requests: a network, or a server in the same process."""

from typing import Protocol

from msgspec.structs import replace

from controller_manager.api.wire import DuplexStream, Request, Response, Upgrade

LARGEST_BODY = 1 << 30


class TransportError(ConnectionError):
    """No whole answer arrived: the server can't be reached, hung up early, took too long or sent nonsense."""


class UnaskedUpgrade(TransportError):
    """The server left HTTP where nobody offered that."""

    def __init__(self) -> None:
        super().__init__("the server changed to a protocol nobody asked for")


class Transport(Protocol):
    """Carries one request and brings back the answer; a refusal of the API is an answer too."""

    @property
    def host(self) -> str:
        """Whom it talks to, for metrics."""

    @property
    def authorities(self) -> bytes:
        """Whose certificates (PEM) it believes the server by; empty if those of the system, or if none are shown."""

    async def send(self, request: Request) -> Response:
        """The answer; the body of a watch is a stream. Raises `TransportError`."""

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """The answer, and if that is 101 the stream on a connection of its own (RFC 9110, section 7.8).

        The request offers protocols in its `upgrade` header; any other answer is one as of `send`. Raises
        `TransportError`.
        """

    async def close(self) -> None:
        """Give back every connection; running requests fail and streams break."""


def is_watch(request: Request) -> bool:
    """Whether the answer is an endless stream."""
    return any(name == "watch" and value not in ("0", "false") for name, value in request.query)


def with_offer(request: Request) -> Request:
    """The request with the header that makes its `upgrade` header count. Raises ValueError without one."""
    if not request.headers.get("upgrade"):
        raise ValueError("the request offers no protocol in an upgrade header")
    return replace(request, headers={**request.headers, "connection": "upgrade"})


async def whole_body(response: Response) -> bytes:
    """The body of an answer in one piece, at most 1 GiB."""
    if isinstance(response.body, bytes):
        return response.body
    if isinstance(response.body, Upgrade):
        raise UnaskedUpgrade
    chunks, size = [], 0
    try:
        async for chunk in response.body:
            size += len(chunk)
            if size > LARGEST_BODY:
                raise TransportError(f"the answer is larger than {LARGEST_BODY} bytes")
            chunks.append(chunk)
    finally:
        await close_body(response)
    return b"".join(chunks)


async def close_body(response: Response) -> None:
    """Tell the sender of a streamed body that nobody reads on."""
    close = getattr(response.body, "aclose", None)
    if close is not None:
        await close()
