"""HTTP/1.1 as pure functions: parse targets and headers, format status and headers."""

import math
import re
import ssl
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, unquote

from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.wire import Certificate, Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CHUNKED = "transfer-encoding: chunked\r\n"
UNTIL_CLOSE = ""
SWITCHING = "connection: upgrade\r\n"

_NOTHING_TWICE: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_ENCODED_SLASH = re.compile("%2f", re.IGNORECASE)
_UID = "1.3.6.1.4.1.57683.2"  # subject attribute with the uid of the user
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def parse_target(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the decoded path and the query of a request target.

    An encoded slash stays `%2F`: it is part of a segment, not a separator.
    """
    path, _, query = target.partition("?")
    if "%" in path:
        path = unquote(_ENCODED_SLASH.sub("%252F", path))
    return path, _parameters(query) if query else ()


def _parameters(query: str) -> tuple[tuple[str, str], ...]:
    if "%" in query or "+" in query:
        return tuple(parse_qsl(query, keep_blank_values=True))
    pairs = (part.partition("=") for part in query.split("&") if part)
    return tuple((name, value) for name, _, value in pairs)


def fold_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by lower-case name; values of a repeated name are joined with commas (RFC 9110, section 5.3)."""
    folded: dict[str, str] = {}
    for name, value in items:
        name = name.lower()
        folded[name] = f"{folded[name]}, {value}" if name in folded else value
    return folded


def repeated_headers(items: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return the separate values of the headers that occur several times."""
    found: dict[str, list[str]] = {}
    for name, value in items:
        found.setdefault(name.lower(), []).append(value)
    return {name: tuple(values) for name, values in found.items() if len(values) > 1}


def certificate_of(peer: Mapping[str, Any] | None, root: str = "", digest: str = "") -> Certificate | None:
    """Return a verified peer certificate in the form of `ssl`, issued below the CA `root`; None without a common name.

    The uid of the user is the single value of an attribute defined by Kubernetes, if present.
    """
    if not peer:
        return None
    pairs = [pair for part in peer.get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    if not names:
        return None
    organizations = tuple(value for key, value in pairs if key == "organizationName")
    expires = float(ssl.cert_time_to_seconds(peer["notAfter"])) if "notAfter" in peer else math.inf
    uids = [value for key, value in pairs if key == _UID]
    uid = "" if not uids else uids[0] if len(uids) == 1 and uids[0] else None
    return Certificate(names[-1], organizations, root, expires, uid, digest)


def content_length(status: int, size: int) -> str:
    """Return the Content-Length header; empty for 204 and 304."""
    return "" if status in (204, 304) else f"content-length: {size}\r\n"


def head(
    status: int,
    headers: Mapping[str, str],
    date: str,
    framing: str,
    *,
    keep: bool,
    repeated: Mapping[str, tuple[str, ...]] = _NOTHING_TWICE,
) -> bytes:
    """Return the status line and headers, those in `repeated` once per value; `framing` is the header line for the
    length of the body.

    Control characters in values are replaced by spaces, so that a value cannot start another header.
    """
    lines = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n", date]
    if repeated:
        lines += [f"{name}: {value}\r\n" for name, values in repeated.items() for value in values]
        headers = {name: value for name, value in headers.items() if name not in repeated}
    lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
    expected = len(lines) + 1 + (not keep) - (not framing)
    lines.append(framing if keep else f"{framing}connection: close\r\n")
    text = "".join(lines)
    if text.count("\n") != expected or text.count("\r") != expected:
        plain = {_plain(name): tuple(map(_plain, values)) for name, values in repeated.items()}
        return head(status, _without_control(headers), date, framing, keep=keep, repeated=plain)
    return f"{text}\r\n".encode("utf-8", "replace")


def date_line(seconds: float) -> str:
    """Return the Date header for a wall time in seconds."""
    return f"date: {formatdate(seconds, usegmt=True)}\r\n"


def framed(chunk: bytes) -> bytes:
    """Return a chunk with its framing (RFC 9112, section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)


def refusal(error: ApiError) -> Response:
    """Return an error as response with its Status."""
    headers = {"content-type": "application/json"}
    if error.details is not None and error.details.retry_after_seconds:
        headers["retry-after"] = str(error.details.retry_after_seconds)
    return Response(error.code, headers, error.status().encode())


def _without_control(headers: Mapping[str, str]) -> dict[str, str]:
    return {_plain(name): _plain(value) for name, value in headers.items()}


def _plain(text: str) -> str:
    return _CONTROL.sub(" ", text)
