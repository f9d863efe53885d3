"""/: which pages a manager has."""

from collections.abc import Iterable
from html import escape

import msgspec

from controller_manager.api.wire import Request, Response
from controller_manager.app.pages.html import document, headers, table, wants_html
from controller_manager.component.routes import Handler

_HTML = headers()
_ABOUT = {
    "/debug/controllers": "what each controller does, what fails and why, and how fresh its local copies are",
    "/healthz": "whether this process should be left running, controller by controller with ?verbose",
    "/livez": "whether this process is alive",
    "/readyz": "whether its controllers have read what they need, with ?verbose which ones wait for what",
    "/metrics": "numbers for Prometheus",
    "/metrics/slis": "the health checks as numbers for Prometheus",
    "/configz": "the settings in effect, as JSON",
    "/flagz": "the flags in effect",
    "/statusz": "version and age of this process",
    "/debug/pprof": "profiles of time and memory, for go tool pprof",
}


def index_handler(name: str, paths: Iterable[str]) -> Handler:
    """Answers / with the `paths` there are: a page for browsers, JSON as an API server tells its own for others."""
    known = sorted({path.removesuffix("/") for path in paths} - {""} | {"/healthz", "/livez", "/readyz"})
    body = msgspec.json.encode({"paths": known})
    rows = [("", (f'<a href="{escape(path)}">{escape(path)}</a>', _ABOUT.get(path, ""))) for path in known]
    page = document(name, f"<h1>{escape(name)}</h1>{table(('Page', 'What it shows'), rows)}").encode()

    async def answer(request: Request) -> Response:
        if wants_html(request):
            return Response(200, _HTML, page)
        return Response(200, {"content-type": "application/json", "vary": "accept"}, body)

    return answer
