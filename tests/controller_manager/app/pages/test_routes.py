"""What the manager answers to whom."""

import json

import pytest
from prometheus_client import CollectorRegistry, Gauge

from controller_manager.api.wire import Certificate, Request, Response
from controller_manager.app.access.metrics import AccessMetrics
from controller_manager.app.flags import flag_set
from controller_manager.app.pages.debugging import debugging_routes
from controller_manager.app.pages.metrics import metrics_handler
from controller_manager.app.pages.routes import Pages
from controller_manager.base.log import get_logger
from controller_manager.serving import Health
from controller_manager.serving.access import ANONYMOUS, Access, Decision, Identity, OpenPaths


async def by_certificate(request: Request) -> Identity:
    shown = request.certificate
    return ANONYMOUS if shown is None else Identity(shown.common_name, shown.organizations)


async def never(identity: Identity, verb: str, path: str) -> Decision:
    return Decision.NO_OPINION


def make_pages(*flags: str) -> Pages:
    registry = CollectorRegistry()
    Gauge("answer", "Of everything.", registry=registry).set(42)
    access = Access(OpenPaths(("/healthz", "/livez", "/readyz")), by_certificate, never, AccessMetrics(registry))
    routes = {
        "/metrics": metrics_handler(registry),
        **debugging_routes("manager", flag_set(()).parse(["-v=2", *flags])),
    }
    return Pages(access, Health(get_logger("test")), routes)


class Unreadable:
    """A body that nobody may read."""

    async def read(self, caller: str) -> bytes:
        raise AssertionError(f"it is read for {caller}")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/configz", "/nonsense"])
@pytest.mark.parametrize("certificate", [None, Certificate("root", ("system:masters",))])
async def test_no_body_is_read_of_anybody(
    pages: Pages, method: str, path: str, certificate: Certificate | None
) -> None:
    response = await pages.handle(Request(method, path, certificate=certificate, unread=Unreadable()))
    assert response.status in (200, 403, 404, 405)


@pytest.fixture
def pages() -> Pages:
    return make_pages()


async def ask(pages: Pages, path: str, *, admin: bool = False, method: str = "GET") -> tuple[int, str, str]:
    certificate = Certificate("admin", ("system:masters",)) if admin else None
    response: Response = await pages.handle(Request(method, path, certificate=certificate))
    assert isinstance(response.body, bytes)
    return response.status, response.headers["content-type"], response.body.decode()


async def test_health_is_for_everybody_and_nothing_else(pages):
    assert (await ask(pages, "/healthz"))[0] == 200
    for path in ("/metrics", "/configz", "/", "/nothing"):
        status, _, body = await ask(pages, path)
        assert (status, json.loads(body)["reason"]) == (403, "Forbidden")


async def test_an_administrator_sees_metrics_and_configuration(pages):
    status, kind, body = await ask(pages, "/metrics", admin=True)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "answer 42\n" in body
    status, kind, body = await ask(pages, "/configz", admin=True)
    assert (status, kind, json.loads(body)["manager"]["v"]) == (200, "application/json", 2)


async def test_other_pages_and_methods_are_refused(pages):
    assert (await ask(pages, "/nothing", admin=True))[0] == 404
    assert (await ask(pages, "/metrics", admin=True, method="POST"))[0] == 405
