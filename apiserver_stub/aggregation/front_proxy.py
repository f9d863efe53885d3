"""Requests of callers as this server passes them on: who they are is said in headers, which a certificate vouches for
(Kubernetes documentation, Configure the Aggregation Layer).
"""

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from controller_manager.api.wire import Request
from controller_manager.serving.authentication import WEBSOCKET_PROTOCOL, RequestHeaderConfig, User, without_token
from controller_manager.serving.tls import KeyPair

ProxyPair = Callable[[], KeyPair | None]
"""Returns the certificate this server shows as a proxy, and its key; None while it has none."""


def no_pair() -> KeyPair | None:
    """Return that there is none."""
    return None


USER, UID, GROUP, EXTRA = "x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-"
# Headers of one connection (RFC 9110, section 7.6.1), and those that would say who the caller is.
_KEPT_BACK = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "trailers", "transfer-encoding", "upgrade", "expect", "host", "authorization", "audit-id", USER, UID, GROUP,
})  # fmt: skip
_NO_PROXIES = RequestHeaderConfig()
_IMPERSONATION = "impersonate-"
_ESCAPED = re.compile(r"[^!#$&'*+\-.^_`|~0-9A-Za-z]")


def forwarded(
    request: Request, user: User, audit_id: str, host: str, proxies: RequestHeaderConfig = _NO_PROXIES
) -> Request:
    """Return a request as the server at `host` gets it, in the name of `user`, without what this server was told it
    by: credentials, and the headers in which its own `proxies` name users.
    """
    named = _of_connection(request)
    kept = {
        name: value
        for name, value in request.headers.items()
        if not (name in named or _is_kept_back(name) or proxies.uses(name))
    }
    if WEBSOCKET_PROTOCOL in kept:
        kept[WEBSOCKET_PROTOCOL] = without_token(kept[WEBSOCKET_PROTOCOL])
    apart = {name: values for name, values in request.repeated.items() if name in kept and name != WEBSOCKET_PROTOCOL}
    told = {"audit-id": audit_id, "x-forwarded-host": host, "x-forwarded-proto": "https"}
    headers = {**kept, **told, "x-forwarded-uri": request.path}
    passed = replace(request, headers=headers, repeated=apart, certificate=None, unread=None)
    return in_the_name_of(user, passed)


def in_the_name_of(user: User, request: Request) -> Request:
    """Return a request with the headers that name a user."""
    told: dict[str, tuple[str, ...]] = {}
    for name, value in _identity(user):
        told[name] = (*told.get(name, ()), value)
    joined = {name: ", ".join(values) for name, values in told.items()}
    apart = {name: values for name, values in told.items() if len(values) > 1}
    return replace(request, headers={**request.headers, **joined}, repeated={**request.repeated, **apart})


def _identity(user: User) -> Iterator[tuple[str, str]]:
    yield USER, user.name
    if user.uid:
        yield UID, user.uid
    for group in user.groups:
        yield GROUP, group
    for key, values in user.extra.items():
        for value in values:
            yield EXTRA + _escaped(key), value


def returned(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of an answer without those of its connection and its framing."""
    named = _listed(headers.get("connection", ""))
    return {
        name: value
        for name, value in headers.items()
        if name not in named and name != "content-length" and name not in _KEPT_BACK
    }


def _of_connection(request: Request) -> frozenset[str]:
    return _listed(request.headers.get("connection", ""))


def _listed(value: str) -> frozenset[str]:
    return frozenset(token.strip().lower() for token in value.split(","))


def _is_kept_back(name: str) -> bool:
    return name in _KEPT_BACK or name.startswith((EXTRA, _IMPERSONATION))


def _escaped(key: str) -> str:
    """Return the key of an extra as the name of a header has it (RFC 9110, section 5.6.2; RFC 3986, section 2.1)."""
    return _ESCAPED.sub(lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode()), key).lower()
