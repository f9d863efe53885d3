"""The server: errors become a Status, internal errors hide their cause, unknown callers see only health."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from msgspec.structs import replace

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.request.api_request import APIRequest, Reply
from apiserver_stub.server.handler_chain import Handlers
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.log import Levels, Streams, configure
from controller_manager.common.base.runtime import Runtime

ADMIN = Certificate("admin", ("system:masters",))
PODS = "/api/v1/namespaces/default/pods"


def make(*arguments: str) -> ApiServer:
    flags = ("--storage-backend=memory", "--advertise-address=192.0.2.1", *arguments)
    return build(FLAGS.parse(flags), Runtime("test"))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('s3cret,jane,42,"dev,ops"\n')
    server = make(f"--token-auth-file={tokens}")
    await server.start()
    yield server
    await server.stop()


async def ask(api: ApiServer, method: str, target: str, body: Any = None, **headers: str) -> tuple[Response, Any]:
    """The answer to an administrator, and its JSON."""
    path, _, query = target.partition("?")
    pairs = tuple(pair.partition("=")[::2] for pair in query.split("&")) if query else ()
    data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else b""
    given_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await api.handle(Request(method, path, pairs, given_headers, data, ADMIN))
    assert isinstance(response.body, bytes)
    is_json = response.headers.get("content-type", "").startswith("application/json")
    return response, msgspec.json.decode(response.body) if is_json and response.body else response.body


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


@pytest.mark.parametrize("path", ["/api", "/apis", "/metrics", "/openapi/v2", "/", PODS, "/nonsense"])
@pytest.mark.parametrize("token", ["", "forged"])
async def test_unknown_callers_are_rejected(api: ApiServer, path: str, token: str) -> None:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    response = await api.handle(Request("GET", path, headers=headers))
    assert response.status == 401
    status = msgspec.json.decode(response.body)
    assert (status["kind"], status["reason"], status["code"]) == ("Status", "Unauthorized", 401)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping", "/livez/datastore"])
async def test_health_is_public_but_single_checks_are_not(api: ApiServer, path: str) -> None:
    open_to_all = path.count("/") == 1
    assert (await api.handle(Request("GET", path))).status == (200 if open_to_all else 401)
    response = await api.handle(Request("GET", path, certificate=ADMIN))
    assert (response.status, response.body) == (200, b"ok")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", PODS, "GET, POST, DELETE"),
        ("POST", f"{PODS}/p", "GET, PUT, PATCH, DELETE"),
        ("OPTIONS", "/api/v1/pods", "GET"),
        ("DELETE", f"{PODS}/p/status", "GET, PUT, PATCH"),
        ("DELETE", "/api/v1/namespaces", "GET, POST"),
        ("POST", "/version", "GET"),
        ("DELETE", "/apis/apps", "GET"),
    ],
)
async def test_method_not_allowed_lists_allowed_methods(api: ApiServer, method: str, path: str, allowed: str) -> None:
    response, status = await ask(api, method, path)
    assert (response.status, status["reason"], response.headers["allow"]) == (405, "MethodNotAllowed", allowed)


async def test_anonymous_caller_cannot_impersonate(api: ApiServer) -> None:
    stranger = await api.handle(Request("GET", PODS, headers={"impersonate-user": "eve"}))
    assert stranger.status == 401


async def test_token_identifies_the_caller(api: ApiServer) -> None:
    body = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    headers = {"authorization": "Bearer s3cret", "content-type": "application/json"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    response = await api.handle(Request("POST", path, (), headers, body))
    assert response.status == 201
    user = msgspec.json.decode(response.body)["status"]["userInfo"]
    assert user == {"username": "jane", "uid": "42", "groups": ["dev", "ops", "system:authenticated"]}


async def test_object_is_created_read_and_deleted(api: ApiServer) -> None:
    created, _ = await ask(api, "POST", PODS, pod("a"))
    found, tree = await ask(api, "GET", f"{PODS}/a")
    assert (created.status, found.status, tree["metadata"]["name"]) == (201, 200, "a")
    assert found.headers["content-type"] == "application/json"
    assert found.headers["cache-control"] == "no-cache, private"
    again, status = await ask(api, "POST", PODS, pod("a"))
    assert (again.status, status["reason"]) == (409, "AlreadyExists")


async def test_watch_is_streamed(api: ApiServer) -> None:
    request = Request("GET", PODS, (("watch", "1"), ("resourceVersion", "0")), {}, b"", ADMIN)
    await ask(api, "POST", PODS, pod("a"))
    response = await api.handle(request)
    assert not isinstance(response.body, bytes)
    chunk = await anext(response.body)
    assert msgspec.json.decode(chunk.splitlines()[0])["type"] == "ADDED"
    await response.body.aclose()


async def test_stop_fails_readiness_and_ends_streams(api: ApiServer) -> None:
    response = await api.handle(Request("GET", PODS, (("watch", "1"),), {}, b"", ADMIN))
    assert not isinstance(response.body, bytes)
    api.unready()
    assert (await api.handle(Request("GET", "/readyz"))).status == 500
    assert (await api.handle(Request("GET", "/livez"))).status == 200
    api.end_streams()
    async with asyncio.timeout(30):
        assert [chunk async for chunk in response.body] == []


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        ("GET", f"{PODS}/missing", 404, "NotFound"),
        ("GET", "/api/v1/gizmos", 404, "NotFound"),
        ("GET", "/openapi/v1", 404, "NotFound"),
        ("GET", "/openapi/v3/apis/nothing/v1", 404, "NotFound"),
        ("GET", "/apis/nothing", 404, "NotFound"),
        ("POST", "/version", 405, "MethodNotAllowed"),
        ("POST", "/apis", 405, "MethodNotAllowed"),
        ("PUT", PODS, 405, "MethodNotAllowed"),
        ("POST", PODS, 400, "BadRequest"),
        ("GET", f"{PODS}/..", 400, "BadRequest"),
        ("GET", f"{PODS}?limit=many", 400, "BadRequest"),
    ],
)
async def test_errors_are_a_status(api: ApiServer, method: str, path: str, code: int, reason: str) -> None:
    response, status = await ask(api, method, path)
    assert (response.status, status["kind"], status["code"], status["reason"]) == (code, "Status", code, reason)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/gizmos"),
        ("GET", f"{PODS}/a/gizmo"),
        ("PUT", PODS),
        ("POST", "/version"),
        ("PUT", f"{PODS}/a/log"),
    ],
)
async def test_not_found_has_empty_details(api: ApiServer, method: str, path: str) -> None:
    """As in kube-apiserver, so that clients can read `details` without a check."""
    _, status = await ask(api, method, path)
    assert status["details"] == {}


async def test_internal_error_hides_the_cause(api: ApiServer) -> None:
    async def fail(_call: APIRequest) -> Reply:
        raise RuntimeError("the secret of the house")

    _replace_answer(api, fail)
    response, status = await ask(api, "GET", PODS)
    assert (response.status, status["reason"]) == (500, "InternalError")
    assert "secret" not in status["message"]


@pytest.mark.virtual
async def test_write_has_a_timeout() -> None:
    async def dawdle(_call: APIRequest) -> Reply:
        await asyncio.sleep(3600)
        raise AssertionError

    api = make("--request-timeout=30s")
    await api.start()
    _replace_answer(api, dawdle)
    response, status = await ask(api, "POST", PODS, pod("a"))
    assert (response.status, status["reason"]) == (504, "Timeout")
    assert "unknown" in status["message"]  # the write may still happen
    assert asyncio.get_running_loop().time() == pytest.approx(30, abs=1)
    await api.stop()


@pytest.fixture
def logged() -> Iterator[Callable[[int], io.StringIO]]:
    """Start a log with a verbosity."""
    before = structlog.get_config()

    def begin(verbosity: int) -> io.StringIO:
        out = io.StringIO()
        configure(json=True, levels=Levels(verbosity), streams=Streams(out))
        return out

    yield begin
    structlog.configure(**before)


@pytest.mark.parametrize(("verbosity", "count"), [(0, 0), (3, 0), (4, 3)])
async def test_verbose_log_contains_no_bodies_or_credentials(
    logged: Callable[[int], io.StringIO], verbosity: int, count: int
) -> None:
    """Neither the body nor the query of a request, nor the credentials of its caller."""
    out = logged(verbosity)
    api = make()
    await api.open()
    out.truncate(0)
    out.seek(0)
    await ask(api, "POST", f"{PODS}?fieldManager=s3cret", {"s3cret": "s3cret"}, authorization="Bearer s3cret")
    await ask(api, "GET", PODS)
    await api.handle(Request("GET", "/a\nforged line", headers={"authorization": "Bearer s3cret"}))
    lines = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
    assert len(lines) == count
    assert "s3cret" not in out.getvalue()
    if count:
        assert [(line["msg"], line["status"]) for line in lines] == [
            ("answered", 404),
            ("answered", 200),
            ("answered", 401),
        ]
        assert (lines[1]["method"], lines[1]["path"]) == ("GET", f"'{PODS}'")
        assert lines[2]["path"] == r"'/a\nforged line'"
    await api.stop()


async def page_of(api: ApiServer, path: str = "/metrics") -> str:
    response, page = await ask(api, "GET", path)
    assert response.status == 200
    return str(page.decode())


async def test_requests_are_counted(api: ApiServer) -> None:
    """Labels equal those of kube-apiserver 1.36."""
    await ask(api, "GET", PODS)
    await ask(api, "GET", "/api/v1/gizmos")
    await ask(api, "GET", "/healthz/ping")
    await ask(api, "POST", "/api/v1/namespaces?dryRun=All", {"metadata": {"name": "n"}})
    page = await page_of(api)
    for labels in (
        (
            'code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",'
            'verb="LIST",version="v1"'
        ),
        (
            'code="201",component="apiserver",dry_run="All",group="",resource="namespaces",scope="resource",'
            'subresource="",verb="POST",version="v1"'
        ),
        'code="200",component="",dry_run="",group="",resource="",scope="",subresource="healthz",verb="GET",version=""',
    ):
        assert f"apiserver_request_total{{{labels}}} 1\n" in page
        timed = labels.partition(",")[2]
        assert f"apiserver_request_duration_seconds_count{{{timed}}} 1\n" in page
    assert "gizmos" not in page


async def test_inflight_requests_are_counted(api: ApiServer) -> None:
    assert 'apiserver_current_inflight_requests{request_kind="readOnly"} 1\n' in await page_of(api)  # this one
    watch = await api.handle(Request("GET", PODS, (("watch", "1"),), certificate=Certificate("test")))
    labels = 'component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"'
    assert f"apiserver_longrunning_requests{{{labels}}} 1\n" in await page_of(api)
    for _ in range(2):
        await watch.body.aclose()
        assert f"apiserver_longrunning_requests{{{labels}}} 0\n" in await page_of(api)
    assert 'apiserver_current_inflight_requests{request_kind="mutating"} 0\n' in await page_of(api)


async def test_stored_objects_are_counted(api: ApiServer) -> None:
    page = await page_of(api)
    assert 'apiserver_storage_objects{resource="namespaces"} 4\n' in page
    assert 'apiserver_resource_objects{group="apiregistration.k8s.io",resource="apiservices"} 21\n' in page
    assert 'apiserver_storage_objects{resource="deployments.apps"} 0\n' in page


async def test_process_metrics_are_shown(api: ApiServer) -> None:
    page = await page_of(api)
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
        assert f"\n{name} " in page


async def test_health_checks_are_slis(api: ApiServer) -> None:
    await ask(api, "GET", "/readyz")
    await ask(api, "GET", "/readyz/ping")
    page = await page_of(api, "/metrics/slis")
    assert 'kubernetes_healthcheck{name="ping",type="readyz"} 1\n' in page
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2\n' in page
    assert 'type="livez"' not in page


def _replace_answer(api: ApiServer, answer: Any) -> None:
    handlers: Handlers = api.server._handlers
    api.server._handlers = replace(handlers, resource=answer)
