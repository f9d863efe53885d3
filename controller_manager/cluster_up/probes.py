"""Probes of the child processes over the loopback interface."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence
from http import HTTPStatus

_MOST_TRIES = 100
_PORTS = 1 << 16
_STANDING_BY = b"standing by"
_LEAD_SECONDS = 3.0
_LONGEST_ANSWER = 64 * 1024
_ANSWER_SECONDS = 5.0
POLL_SECONDS = 0.02
"""Seconds between readiness probes."""


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports that are free. Raises OSError if there are none."""
    for _ in range(_MOST_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        if first + count <= _PORTS and all(is_free(port) for port in range(first, first + count)):
            return first
    raise OSError(errno.EADDRINUSE, "no free ports in a row")


def without_verifying() -> ssl.SSLContext:
    """Return a TLS context for health probes on loopback, which send no secrets."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


async def answers_ready(port: int, tls: ssl.SSLContext) -> bool:
    """Return whether GET /readyz returns 200."""
    return (await _get(port, tls, "/readyz"))[0] == HTTPStatus.OK


async def leading_port(ports: Sequence[int], tls: ssl.SSLContext) -> int:
    """Return the port of the leading manager; the first port if it is not known within three seconds."""
    for _ in range(int(_LEAD_SECONDS / POLL_SECONDS)):
        answers = [(await _get(port, tls, "/readyz?verbose"))[1] for port in ports]
        waiting = [_STANDING_BY in answer for answer in answers]
        if waiting.count(False) == 1:
            return ports[waiting.index(False)]
        await asyncio.sleep(POLL_SECONDS)
    return ports[0]


async def _get(port: int, tls: ssl.SSLContext, path: str) -> tuple[int, bytes]:
    """Return status and start of the body of a response; 0 if there is none within five seconds."""
    import aiohttp  # --help does not load it

    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=timeout) as session,
            session.get(f"https://127.0.0.1:{port}{path}") as response,
        ):
            return response.status, await response.content.read(_LONGEST_ANSWER)
    except (aiohttp.ClientError, TimeoutError):
        return 0, b""
