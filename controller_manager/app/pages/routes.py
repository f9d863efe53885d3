"""The routes of a manager's pages, with access control."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from controller_manager.app.pages.html import document, headers, table, wants_html
from controller_manager.app.pages.ui import PATH as UI
from controller_manager.common.api.errors import ApiError, Forbidden, MethodNotAllowed, NotFound, Unauthorized
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.component.pages import Handler, find_handler
from controller_manager.common.component.secure_serving import SecureServingOptions
from controller_manager.common.options.flag import flag
from controller_manager.common.serving.health import Health
from controller_manager.common.serving.http import refusal
from controller_manager.common.serving.trust import Trust

_ABOUT = {
    UI: "the cluster: nodes, workloads, pods, events, and what the controllers did last and why",
    f"{UI}/state": "what that page shows, as JSON",
    "/debug/controllers": "what each controller does, what fails and why, and how fresh its local copies are",
    "/healthz": "whether this process should be left running, controller by controller with ?verbose",
    "/livez": "whether this process is alive",
    "/readyz": "whether it reaches the API server and has read what its controllers need; ?verbose names what waits",
    "/metrics": "numbers for Prometheus",
    "/metrics/slis": "the health checks as numbers for Prometheus",
    "/configz": "the settings in effect, as JSON",
    "/flagz": "the flags in effect",
    "/statusz": "version and age of this process",
    "/debug/pprof": "profiles of time and memory, for go tool pprof",
}
_HTML = headers()
# These commands have no text from the request, because people copy them to their shells.
_COMMANDS = """kubectl create clusterrole manager-pages --verb=get --non-resource-url=/debug/controllers
kubectl -n NAMESPACE create serviceaccount reader
kubectl create clusterrolebinding manager-pages --clusterrole=manager-pages --serviceaccount=NAMESPACE:reader

kubectl -n NAMESPACE port-forward POD 10257
curl --insecure --header "Authorization: Bearer $(kubectl -n NAMESPACE create token reader)" \\
  https://localhost:10257/debug/controllers"""


class Guards(Protocol):
    """Authenticates and authorizes requests."""

    async def check(self, request: Request) -> None:
        """Return if the request is allowed. Raises Unauthorized or Forbidden otherwise."""


class Pages:
    """Handles all requests. A path in `routes` that ends in a slash, except `/`, includes all paths below it."""

    def __init__(self, guard: Guards, health: Health, routes: Mapping[str, Handler]) -> None:
        self._guard = guard
        self._health = health
        self._routes = routes

    async def handle(self, request: Request) -> Response:
        """Return the response to a request, or an error response."""
        try:
            await self._guard.check(request)
            return self._health.answer(request) or await self._page(request)
        except ApiError as error:
            is_closed = isinstance(error, Unauthorized | Forbidden)
            if is_closed and request.path == UI in self._routes:  # the page has no data, and asks for a token
                return replace(await self._page(request), status=error.code)
            return how_to_come_in(error) if is_closed and wants_html(request) else refusal(error)

    async def _page(self, request: Request) -> Response:
        handler = find_handler(self._routes, request.path)
        if handler is None:
            known = ", ".join(("/healthz", "/livez", "/readyz", *self._routes))
            raise NotFound(f"there is no page {request.path}; there are {known}")
        if request.method != "GET":
            raise MethodNotAllowed(f"{request.path} can only be read")
        return await handler(request)


def index_handler(name: str, paths: Iterable[str]) -> Handler:
    """Return the handler of `/`, which lists the `paths`: HTML for browsers, JSON like an API server's for others."""
    known = sorted({path.removesuffix("/") for path in paths} - {""} | {"/healthz", "/livez", "/readyz"})
    body = msgspec.json.encode({"paths": known})
    rows = [("", (f'<a href="{escape(path)}">{escape(path)}</a>', _ABOUT.get(path, ""))) for path in known]
    page = document(name, f"<h1>{escape(name)}</h1>{table(('Page', 'What it shows'), rows)}").encode()

    async def answer(request: Request) -> Response:
        if wants_html(request):
            return Response(200, _HTML, page)
        return Response(200, {"content-type": "application/json", "vary": "accept"}, body)

    return answer


def how_to_come_in(error: ApiError) -> Response:
    """Return an HTML error page for a browser, with no more information than the Status has."""
    body = f"""<h1>{error.code}: this page needs a permission</h1>
<p>{escape(error.message)}</p>
<p>Ask with the token of a service account that may get this path, or with a client certificate of the cluster's
authority, which this browser can hold. A user who may create roles can grant it, for one or more
paths:</p>
<pre>{escape(_COMMANDS)}</pre>"""
    return Response(error.code, _HTML, document(f"{error.code}", body).encode())


# The manager's pages, served over HTTPS.

if TYPE_CHECKING:  # its HTTP library takes half of the start-up time, and --help does not need it
    from controller_manager.common.serving.http_server import HTTPServer

# Limits: pages need no request bodies, and unauthenticated clients can send request heads.
_HEAD, _BODY, _CONNECTIONS = 128 * 1024, 64 * 1024, 1000


class ServingOptions(SecureServingOptions):
    """Flags for serving health checks, metrics and other pages."""

    secure_port: int | None = flag(
        10257,
        "port to serve HTTPS on; 0 serves nothing, and without a default it is any that is free",
        minimum=0,
        maximum=65535,
    )


def pages_server(
    handle: Callable[[Request], Awaitable[Response]], serving: SecureServingOptions, trust: Trust, name: str
) -> "HTTPServer | None":
    """Return the server of the pages of the program `name`, or None with --secure-port=0. Raises CannotStart."""
    if serving.secure_port == 0:
        return None
    from controller_manager.common.component.secure_server import secure_server, self_signed
    from controller_manager.common.serving.http_server import ServerLimits

    limits = ServerLimits(_HEAD, _BODY, _CONNECTIONS)
    return secure_server(handle, serving, trust, partial(self_signed, serving, name), limits)
