"""Probes of the child processes over the loopback interface, without an HTTP library to start fast."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence

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
    return b" 200 " in (await _ask(port, tls, "/readyz")).partition(b"\r\n")[0]


async def leading_port(ports: Sequence[int], tls: ssl.SSLContext) -> int:
    """Return the port of the leading manager; the first port if it is not known within three seconds."""
    for _ in range(int(_LEAD_SECONDS / POLL_SECONDS)):
        answers = [await _ask(port, tls, "/readyz?verbose") for port in ports]
        waiting = [_STANDING_BY in answer for answer in answers]
        if waiting.count(False) == 1:
            return ports[waiting.index(False)]
        await asyncio.sleep(POLL_SECONDS)
    return ports[0]


async def _ask(port: int, tls: ssl.SSLContext, path: str) -> bytes:
    """Return the response to a GET, empty if there is none."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
                return await reader.read(_LONGEST_ANSWER)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
