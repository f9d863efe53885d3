"""A second API server of this project behind the first: it trusts the front proxy and knows the original user."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.http_server import HTTPServer
from controller_manager.common.serving.tls import context_of, issue
from controller_manager.common.serving.trust import PROXIES, Trust

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
POD = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}


@pytest.fixture
async def backend_server(front: Any, tmp_path: Path) -> AsyncIterator[ApiServer]:
    """A server with the group `batch` and with reviews of its callers, behind the first one."""
    authorities = tmp_path / "proxies.pem"
    authorities.write_bytes(front.proxies.certificate)
    trust = Trust()
    trust.set(PROXIES, front.proxies.certificate)
    flags = (
        f"--requestheader-client-ca-file={authorities}", "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-uid-headers=X-Remote-Uid", "--storage-backend=memory", f"--data-dir={tmp_path}",
    )  # fmt: skip
    api = build(FLAGS.parse(flags), Runtime("behind"), certificates=ClientCertificates(trust))
    await api.start()
    pair = issue(front.servers, "server", hosts=["ext.default.svc"])
    server = HTTPServer(api.handle, "127.0.0.1", 0, context_of(pair, front.proxies.certificate))
    await server.start()
    body = {"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await front("POST", "/api/v1/namespaces/default/services", body)
    for group in ("batch", "authentication.k8s.io"):
        found = (await front("GET", f"{SERVICES}/v1.{group}"))[1]
        del found["metadata"]["labels"]
        wanted = front.service(server.port, group, groupPriorityMinimum=17400, versionPriority=15)
        await front("PUT", f"{SERVICES}/v1.{group}", {**found, "spec": wanted["spec"]})
        await front.wait_for_reason("Passed", f"v1.{group}")
    yield api
    api.end_streams()
    await server.stop(0.2)
    await api.stop()


async def test_objects_are_served_through_proxy(front: Any, backend_server: ApiServer) -> None:
    code, made = await front("POST", JOBS, {"metadata": {"name": "a"}, "spec": POD})
    assert (code, made["metadata"]["name"]) == (201, "a")
    patch = {"metadata": {"labels": {"a": "b"}}}
    patched = await front("PATCH", f"{JOBS}/a", patch, content_type="application/merge-patch+json")
    assert (patched[0], patched[1]["metadata"]["labels"]["a"]) == (200, "b")
    assert [one["metadata"]["name"] for one in (await front("GET", JOBS))[1]["items"]] == ["a"]
    table = await front("GET", JOBS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table[1]["kind"] == "Table"
    assert (backend_server.store.count("jobs.batch"), front.api.store.count("jobs.batch")) == (1, 0)
    code, refused = await front("POST", JOBS, {"metadata": {"name": "A b"}, "spec": POD})
    assert (code, refused["reason"]) == (422, "Invalid")
    assert (await front("DELETE", f"{JOBS}/a"))[0] == 200


async def test_watch_through_proxy_has_no_delay(front: Any, backend_server: ApiServer) -> None:
    response = await front.send("GET", f"{JOBS}?watch=1&resourceVersion=0")
    assert response.status == 200
    for name in ("a", "b"):
        await front("POST", JOBS, {"metadata": {"name": name}, "spec": POD})
        async with asyncio.timeout(5):
            event = json.loads(await anext(response.body))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)
    await response.body.aclose()


async def test_user_is_preserved_through_proxy(front: Any, backend_server: ApiServer) -> None:
    review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    path, headers = "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"content-type": "application/json"}
    headers["x-remote-user"] = "root"
    request = Request("POST", path, (), headers, json.dumps(review).encode(), Certificate("joe", ("dev", "system:ops")))
    answer = json.loads((await front.api.handle(request)).body)
    assert answer["status"]["userInfo"] == {"username": "joe", "groups": ["dev", "system:ops", "system:authenticated"]}


async def test_untrusted_proxy_certificate_is_rejected(front: Any, backend_server: ApiServer) -> None:
    assert (await front("GET", JOBS))[0] == 200
    front.pair = issue(front.proxies, "somebody-else", client=True)  # which the next connection shows
    code, refused = await front("GET", JOBS)
    assert (code, refused["reason"]) == (401, "Unauthorized")


async def test_openapi_of_the_server_behind_is_served(front: Any, backend_server: ApiServer) -> None:
    code, document = await front("GET", "/openapi/v3/apis/batch/v1")
    assert (code, f"{JOBS.replace('default', '{namespace}')}" in document["paths"]) == (200, True)
