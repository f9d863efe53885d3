"""Requests of callers as this server passes them on: who they are is said in headers, which a certificate vouches for
(Kubernetes documentation, Configure the Aggregation Layer).
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from apiserver_stub.webhooks.relay import without_caller
from controller_manager.common.api.wire import Request, escape_header_key, with_headers
from controller_manager.common.serving.authentication import RequestHeaderConfig, User
from controller_manager.common.serving.tls import KeyPair

ProxyPair = Callable[[], KeyPair | None]
"""Returns the certificate this server shows as a proxy, and its key; None while it has none."""


def no_pair() -> KeyPair | None:
    """Return that there is none."""
    return None


USER, UID, GROUP, EXTRA = "x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-"
_NO_PROXIES = RequestHeaderConfig()


def forwarded(
    request: Request, user: User, audit_id: str, host: str, proxies: RequestHeaderConfig = _NO_PROXIES
) -> Request:
    """Return a request as the server at `host` gets it, in the name of `user`, without what this server was told it
    by: credentials, and the headers in which its own `proxies` name users.
    """
    kept = without_caller(request, proxies)
    told = {"audit-id": audit_id, "x-forwarded-host": host, "x-forwarded-proto": "https"}
    headers = {**kept.headers, **told, "x-forwarded-uri": request.path}
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
