"""Headers added to all responses: Strict-Transport-Security (RFC 6797), CORS (Fetch), and `Connection: close` on a
random share of requests.
"""

from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from apiserver_stub.common.flags import ServingOptions
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.random import random_source

_METHODS = "POST, GET, OPTIONS, PUT, DELETE, PATCH"
_HEADERS = (
    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since"
)

Handle = Callable[[Request], Awaitable[Response]]


def with_headers(handle: Handle, options: ServingOptions) -> Handle:
    """Return `handle` wrapped so that it adds the headers set by flags; `handle` itself if no flag is set."""
    if options.strict_transport_security_directives or options.cors_allowed_origins or options.goaway_chance:
        return ResponseHeaders(handle, options).answer
    return handle


class ResponseHeaders:
    """Adds headers to the responses of `handle`."""

    def __init__(self, handle: Handle, options: ServingOptions) -> None:
        directives = options.strict_transport_security_directives
        self._handle = handle
        self._always = {"strict-transport-security": "; ".join(directives)} if directives else {}
        self._chance = options.goaway_chance
        self._origins = options.origins

    async def answer(self, request: Request) -> Response:
        """Return the response. CORS preflight requests are answered without calling `handle`."""
        added = {**self._always, **self._of_origin(request.headers.get("origin", ""))}
        if self._chance and random_source().uniform(0, 1) < self._chance:
            added["connection"] = "close"
        if "access-control-allow-origin" in added and request.method == "OPTIONS":
            return Response(204, {"cache-control": "no-cache, private", **added})
        response = await self._handle(request)
        return replace(response, headers={**added, **response.headers}) if added else response

    def _of_origin(self, origin: str) -> Mapping[str, str]:
        if not origin or not any(allowed.matches(origin) for allowed in self._origins):
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": _METHODS,
            "access-control-allow-headers": _HEADERS,
            "access-control-expose-headers": "Date",
            "access-control-allow-credentials": "true",
        }
