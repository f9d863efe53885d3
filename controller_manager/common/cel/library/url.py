"""URL parsing as in Go: absolute URLs, and absolute paths."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from controller_manager.common.base.log.formats import quote
from controller_manager.common.cel.library import Function, Library, Overload
from controller_manager.common.cel.library.address import parse_address
from controller_manager.common.cel.library.costs import (
    nominal,
    nominal_estimate,
    same_size_estimate,
    scan,
)
from controller_manager.common.cel.types import BOOL, STRING, Kind, ListType, MapType, Type
from controller_manager.common.cel.values import EvaluationError, Opaque

_MOST_PARAMETERS = 10_000
_UNRESERVED = r"A-Za-z0-9_.~\-"
_HOST = re.compile(rf"[{_UNRESERVED}!$&'()*+,;=:\[\]<>\"\x80-\xff]*")
_STAYS_IN_HOST = re.compile(rf"[^{_UNRESERVED}!$&'()*+,;=:\[\]<>\"]")
_STAYS_IN_PATH = re.compile(rf"[^{_UNRESERVED}$&+,/:;=@]")
_STAYS_IN_USER = re.compile(rf"[^{_UNRESERVED}$&+,;=]")
_STAYS_IN_FRAGMENT = re.compile(rf"[^{_UNRESERVED}$&+,/:;=?@!()*]")
_GOOD_PATH = re.compile(rf"(?:[{_UNRESERVED}$&+,/:;=@!'()*\[\]%])*")
_GOOD_FRAGMENT = re.compile(rf"(?:[{_UNRESERVED}$&+,/:;=?@!'()*\[\]%])*")
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PORT = re.compile(r":[0-9]*")
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class _Malformed(Exception):
    """A text is not a URL."""


@dataclass(frozen=True, slots=True)
class _Escaped:
    """A part of a URL, escaped and unescaped; each character is a byte."""

    written: str = ""
    plain: str = ""


@dataclass(frozen=True, slots=True)
class URL(Opaque):
    """A parsed URL; its parts are texts with one character per byte."""

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.URL")

    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    host: str = ""
    has_authority: bool = False
    path: _Escaped = _Escaped()
    query: str = ""
    has_query: bool = False
    fragment: _Escaped = _Escaped()

    def __str__(self) -> str:
        """Return the normalized URL."""
        text = f"{self.scheme}:" if self.scheme else ""
        text += self.opaque or self._hierarchy(text)
        if self.has_query or self.query:
            text += f"?{self.query}"
        if self.fragment.plain:
            text += f"#{_written(self.fragment, _GOOD_FRAGMENT, _STAYS_IN_FRAGMENT)}"
        return _text(text)

    def _hierarchy(self, before: str) -> str:
        text, path = "", self.escaped_path
        if (self.scheme and self.has_authority) or self.host or self.user is not None:
            if self.host or self.path.plain or self.user is not None:
                text = "//"
            text += f"{self.user}@" if self.user is not None else ""
            text += _escape(self.host, _STAYS_IN_HOST)
        if path and not path.startswith("/") and self.host:
            text += "/"
        if not before + text and ":" in path.partition("/")[0]:
            text = "./"
        return text + path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, URL) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def escaped_path(self) -> str:
        """Return the escaped path."""
        return "*" if self.path.plain == "*" else _written(self.path, _GOOD_PATH, _STAYS_IN_PATH)

    @property
    def host_and_port(self) -> tuple[str, str]:
        """Return the host, without brackets, and the port."""
        name, port = self.host, ""
        colon = name.rfind(":")
        if colon >= 0 and _PORT.fullmatch(name[colon:]):
            name, port = name[:colon], name[colon + 1 :]
        return (name[1:-1] if name.startswith("[") and name.endswith("]") else name), port

    @property
    def parameters(self) -> dict[str, list[str]]:
        """Return the values of each query parameter; malformed ones are omitted."""
        found: dict[str, list[str]] = {}
        pairs = self.query.split("&")
        if len(pairs) > _MOST_PARAMETERS:
            return found
        for pair in pairs:
            if not pair or ";" in pair:
                continue
            try:
                key, value = (_unescape(part.replace("+", " ")) for part in pair.partition("=")[::2])
            except _Malformed:
                continue
            found.setdefault(_text(key), []).append(_text(value))
        return found


def parse(text: str) -> URL:
    """Parse an absolute URL or path. Raises EvaluationError with the message of Go."""
    try:
        _parse(_raw(text), absolute=True)
    except _Malformed as error:
        raise _refusal(text, error) from None
    return parse_reference(text)


def parse_reference(text: str) -> URL:
    """Parse a URL, which may be relative. Raises EvaluationError with the message of Go."""
    raw = _raw(text)
    rest, _, fragment = raw.partition("#")
    try:
        found = _parse(rest, absolute=False)
    except _Malformed as error:
        raise _refusal(_text(rest), error) from None
    try:
        found["fragment"] = _Escaped(fragment, _unescape(fragment))
    except _Malformed as error:
        raise _refusal(text, error) from None
    return URL(**found)


def problem(text: str) -> str:
    """Return the error of a text as a URL with the message of Go, or an empty text."""
    try:
        _parse(_raw(text), absolute=True)
    except _Malformed as error:
        return f"parse {quote(text)}: {error}"
    return ""


def _raw(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _refusal(text: str, error: _Malformed) -> EvaluationError:
    return EvaluationError(f"URL parse error during conversion from string: parse {quote(text)}: {error}")


def _parse(raw: str, *, absolute: bool) -> dict[str, Any]:
    if _CONTROL.search(raw):
        raise _Malformed("net/url: invalid control character in URL")
    if not raw and absolute:
        raise _Malformed("empty url")
    if raw == "*":
        return {"path": _Escaped("*", "*")}
    scheme, rest = _scheme(raw)
    found: dict[str, Any] = {"scheme": scheme.lower()}
    rest, mark, found["query"] = rest.partition("?")
    found["has_query"] = bool(mark)
    if not rest.startswith("/"):
        if scheme:
            return {**found, "opaque": rest}
        if absolute:
            raise _Malformed("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise _Malformed("first path segment in URL cannot contain colon")
    if rest.startswith("//") and (scheme or (not absolute and not rest.startswith("///"))):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        found["user"], found["host"] = _authority(found["scheme"], authority)
        found["has_authority"] = True
    found["path"] = _Escaped(rest, _unescape(rest))
    return found


def _scheme(raw: str) -> tuple[str, str]:
    if raw.startswith(":"):
        raise _Malformed("missing protocol scheme")
    found = _SCHEME.match(raw)
    return (found[0][:-1], raw[found.end() :]) if found else ("", raw)


def _authority(scheme: str, authority: str) -> tuple[str | None, str]:
    user, at, host = authority.rpartition("@")
    host = _host(scheme, host)
    if not at:
        return None, host
    if not _USER.fullmatch(user):
        raise _Malformed("net/url: invalid userinfo")
    name, colon, password = user.partition(":")
    return colon.join(_escape(_unescape(part), _STAYS_IN_USER) for part in (name, password)[: 1 + len(colon)]), host


def _host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise _Malformed("invalid IP-literal")
    if bracket == 0:
        return _ip_literal(host)
    first, last = host.find(":"), host.rfind(":")
    if first >= 0:
        _require_port(host[first if scheme in ("http", "https") else last :])
    return _unescape_host(host)


def _ip_literal(host: str) -> str:
    end = host.rfind("]")
    if end < 0:
        raise _Malformed("missing ']' in host")
    _require_port(host[end + 1 :])
    name = host[1:end]
    zone = name.find("%25")
    name = _unescape_host(name[:zone]) + _unescape_zone(name[zone:]) if zone >= 0 else _unescape_host(name)
    try:
        bits = parse_address(_text(name)).bits
    except ValueError as error:
        raise _Malformed(f"invalid host: {error}") from None
    if bits == 32:
        raise _Malformed("invalid IP-literal")
    return f"[{name}]{host[end + 1 :]}"


def _require_port(port: str) -> None:
    if port and not _PORT.fullmatch(port):
        raise _Malformed(f"invalid port {quote(_text(port))} after host")


def _unescape(raw: str) -> str:
    start = raw.find("%")
    while start >= 0:
        if not _ESCAPED.match(raw, start):
            raise _bad_escape(raw[start : start + 3])
        start = raw.find("%", start + 3)
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), raw)


def _bad_escape(part: str) -> _Malformed:
    return _Malformed(f"invalid URL escape {quote(_text(part))}")


def _unescape_host(raw: str, allowed: re.Pattern[str] | None = None) -> str:
    """Return an unescaped host; only escapes of non-ASCII bytes and `allowed` ones are valid."""
    at = 0
    while at < len(raw):
        plain = _HOST.match(raw, at)
        assert plain is not None
        if (at := plain.end()) == len(raw):
            break
        if raw[at] != "%":
            raise _Malformed(f"invalid character {quote(_text(raw[at]))} in host name")
        escape = _ESCAPED.match(raw, at)
        if not escape:
            raise _bad_escape(raw[at : at + 3])
        value = int(escape[1], 16)
        passes = allowed.fullmatch(chr(value)) if allowed else value >= 0x80
        if escape[0] != "%25" and not passes:
            raise _bad_escape(escape[0])
        at += 3
    return _unescape(raw)


def _unescape_zone(raw: str) -> str:
    return _unescape_host(raw, _IN_ZONE)


_IN_ZONE = re.compile(rf"[{_UNRESERVED}!$&'()*+,;=:\[\]<>\" ]")


def _escape(plain: str, escaped: re.Pattern[str]) -> str:
    return escaped.sub(lambda found: f"%{ord(found[0]):02X}", plain)


def _written(part: _Escaped, good: re.Pattern[str], escaped: re.Pattern[str]) -> str:
    """Return a part as written if that is valid, else with default escaping."""
    return part.written if good.fullmatch(part.written) else _escape(part.plain, escaped)


def _text(raw: str) -> str:
    return raw.encode("latin-1").decode("utf-8", "replace")


def _part(name: str, id_: str, result: Type, implementation: Any) -> Function:
    overload = Overload(id_, (URL.type,), result, implementation, receiver=True, estimate=nominal_estimate)
    return Function(name, (overload,), nominal)


URLS = Library(
    "kubernetes.urls",
    (
        Function("url", (Overload("string_to_url", (STRING,), URL.type, parse, estimate=same_size_estimate),), scan()),
        Function("isURL", (Overload("is_url_string", (STRING,), BOOL, lambda text: not problem(text)),)),
        _part("getScheme", "url_get_scheme", STRING, lambda url: _text(url.scheme)),
        _part("getHost", "url_get_host", STRING, lambda url: _text(url.host)),
        _part("getHostname", "url_get_hostname", STRING, lambda url: _text(url.host_and_port[0])),
        _part("getPort", "url_get_port", STRING, lambda url: _text(url.host_and_port[1])),
        _part("getEscapedPath", "url_get_escaped_path", STRING, lambda url: _text(url.escaped_path)),
        _part("getQuery", "url_get_query", MapType(STRING, ListType(STRING)), lambda url: url.parameters),
    ),
)
