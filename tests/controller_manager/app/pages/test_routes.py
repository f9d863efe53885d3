"""Which callers may read which pages of the manager."""

import json

import pytest
from prometheus_client import CollectorRegistry, Gauge

from controller_manager.app.pages.routes import Pages, index_handler
from controller_manager.app.program import flag_set
from controller_manager.common.api.core import PODS
from controller_manager.common.api.errors import Unauthorized
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.log import get_logger
from controller_manager.common.component.pages import debugging_routes, metrics_handler
from controller_manager.common.serving.access_metrics import AccessMetrics
from controller_manager.common.serving.authentication import (
    AnonymousAuthenticator,
    Authenticator,
    RequestAuthenticator,
    User,
    X509Authenticator,
)
from controller_manager.common.serving.authorization import (
    Access,
    AlwaysAllowedPaths,
    AuthorizerChain,
    PrivilegedGroups,
)
from controller_manager.common.serving.health import Health


def access_of(registry: CollectorRegistry, open_paths: tuple[str, ...], *authenticators: Authenticator) -> Access:
    """Return access rules: administrators may read everything, others the open paths."""
    masters = AuthorizerChain([PrivilegedGroups(["system:masters"])])
    authenticator = RequestAuthenticator(authenticators, AnonymousAuthenticator())
    return Access(AlwaysAllowedPaths(open_paths), authenticator, masters, AccessMetrics(registry))


def make_pages(*flags: str) -> Pages:
    registry = CollectorRegistry()
    Gauge("answer", "Of everything.", registry=registry).set(42)
    certificates = X509Authenticator(lambda _certificate: True)
    access = access_of(registry, ("/healthz", "/livez", "/readyz"), certificates)
    routes = {
        "/metrics": metrics_handler(registry),
        **debugging_routes("manager", flag_set(()).parse(["-v=2", *flags]), "v1.2.3"),
    }
    return Pages(access, Health(get_logger("test")), {"/": index_handler("manager", routes), **routes})


class Unreadable:
    """A body that fails the test when it is read."""

    async def read(self, caller: str) -> bytes:
        raise AssertionError(f"it is read for {caller}")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/configz", "/nonsense"])
@pytest.mark.parametrize("certificate", [None, Certificate("root", ("system:masters",))])
async def test_request_body_is_never_read(
    pages: Pages, method: str, path: str, certificate: Certificate | None
) -> None:
    response = await pages.handle(Request(method, path, certificate=certificate, unread=Unreadable()))
    assert response.status in (200, 403, 404, 405)


@pytest.fixture
def pages() -> Pages:
    return make_pages()


async def ask(
    pages: Pages, path: str, *, admin: bool = False, method: str = "GET", accept: str = "*/*"
) -> tuple[int, str, str]:
    certificate = Certificate("admin", ("system:masters",)) if admin else None
    request = Request(method, path, headers={"accept": accept}, certificate=certificate)
    response: Response = await pages.handle(request)
    assert isinstance(response.body, bytes)
    return response.status, response.headers["content-type"], response.body.decode()


async def test_anonymous_caller_reads_health_only(pages):
    assert (await ask(pages, "/healthz"))[0] == 200
    for path in ("/metrics", "/configz", "/", "/nothing"):
        status, _, body = await ask(pages, path)
        assert (status, json.loads(body)["reason"]) == (403, "Forbidden")


async def test_administrator_reads_metrics_and_configuration(pages):
    status, kind, body = await ask(pages, "/metrics", admin=True)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "answer 42\n" in body
    status, kind, body = await ask(pages, "/configz", admin=True)
    assert (status, kind, json.loads(body)["manager"]["v"]) == (200, "application/json", 2)


async def test_unknown_pages_and_methods_are_refused(pages):
    assert (await ask(pages, "/nothing", admin=True))[0] == 404
    assert (await ask(pages, "/metrics", admin=True, method="POST"))[0] == 405


BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


async def test_root_lists_the_pages(pages):
    status, kind, body = await ask(pages, "/", admin=True)
    assert (status, kind) == (200, "application/json")
    expected = ["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz"]
    assert json.loads(body)["paths"] == expected
    status, kind, body = await ask(pages, "/", admin=True, accept=BROWSER)
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert '<a href="/metrics">/metrics</a>' in body
    assert (await ask(pages, "/nothing/", admin=True))[0] == 404, "the index stands for nothing below it"


@pytest.mark.parametrize("path", ["/", "/metrics", "/nothing", "/%3Cscript%3E", "/<script>$(reboot)"])
async def test_browser_without_credentials_gets_instructions(pages, path):
    status, kind, body = await ask(pages, path, accept=BROWSER)
    assert (status, kind) == (403, "text/html; charset=utf-8")
    assert "client certificate" in body
    assert "create token" in body
    assert "<script" not in body
    assert "reboot" not in body[body.index("<pre>") :], "what people copy is the same whatever was asked for"
    assert "answer 42" not in body


async def test_browser_with_invalid_credentials_gets_instructions():
    class RejectingAuthenticator:
        async def authenticate(self, request: Request) -> User | None:
            raise Unauthorized("Unauthorized")

    pages = Pages(access_of(CollectorRegistry(), (), RejectingAuthenticator()), Health(get_logger("test")), {})
    status, kind, body = await ask(pages, "/metrics", accept=BROWSER)
    assert (status, kind) == (401, "text/html; charset=utf-8")
    assert "create token" in body
    assert json.loads((await ask(pages, "/metrics"))[2])["reason"] == "Unauthorized"


@pytest.mark.parametrize(("groups", "may"), [(("system:masters",), True), (("visitors",), False)])
async def test_may_list_asks_the_authorizer(groups: tuple[str, ...], may: bool) -> None:
    access = access_of(CollectorRegistry(), ("/",), X509Authenticator(lambda _certificate: True))
    assert await access.may_list(Request("GET", "/", certificate=Certificate("ann", groups)), PODS) is may
