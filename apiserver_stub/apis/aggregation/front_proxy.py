"""Proxied requests name their user in headers, and the proxy's client certificate authenticates them (Kubernetes
documentation, Configure the Aggregation Layer).
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from apiserver_stub.webhooks.relay import without_caller
from controller_manager.common.api.wire import Request, escape_header_key, with_headers
from controller_manager.common.serving.authentication import RequestHeaderConfig, User
from controller_manager.common.serving.tls import KeyPair

ProxyPair = Callable[[], KeyPair | None]
"""Returns this server's proxy client certificate and key; None if it has none."""


def no_pair() -> KeyPair | None:
    """Return None: there is no certificate."""
    return None


USER, UID, GROUP, EXTRA = "x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-"
_NO_PROXIES = RequestHeaderConfig()


def forwarded(
    request: Request, user: User, audit_id: str, host: str, proxies: RequestHeaderConfig = _NO_PROXIES
) -> Request:
    """Return the request for the server at `host` on behalf of `user`. Credentials and the user headers of this
    server's own `proxies` are removed.
    """
    kept = without_caller(request, proxies)
    added = {"audit-id": audit_id, "x-forwarded-host": host, "x-forwarded-proto": "https"}
    headers = {**kept.headers, **added, "x-forwarded-uri": request.path}
    return in_the_name_of(user, replace(kept, headers=headers))


def in_the_name_of(user: User, request: Request) -> Request:
    """Return a request with the headers that name a user."""
    return with_headers(request, _identity(user))


def _identity(user: User) -> Iterator[tuple[str, str]]:
    yield USER, user.name
    if user.uid:
        yield UID, user.uid
    for group in user.groups:
        yield GROUP, group
    for key, values in user.extra.items():
        for value in values:
            yield EXTRA + escape_header_key(key), value
