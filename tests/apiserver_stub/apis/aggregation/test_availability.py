"""The Available condition of API services, with the reasons and messages of kube-apiserver 1.36."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver_stub.apis.aggregation.api_services import APIService, APIServiceSpec, ServiceReference
from apiserver_stub.apis.aggregation.availability import judge
from controller_manager.common.api.core import Service, ServicePort, ServiceSpec
from controller_manager.common.api.discovery import Endpoint, EndpointConditions, EndpointSlice, SlicePort
from controller_manager.common.api.wire import Request, Response

REMOTE = APIService(spec=APIServiceSpec(service=ServiceReference(namespace="default", name="ext")))
HTTPS = Service(spec=ServiceSpec(ports=(ServicePort(port=443, name="https"),)))
NAMED = 'service/ext in "default"'


def endpoints(ready: bool | None, name: str = "https", port: int | None = 8443) -> EndpointSlice:
    endpoint = Endpoint(addresses=("192.0.2.9",), conditions=EndpointConditions(ready=ready))
    return EndpointSlice(endpoints=(endpoint,), ports=(SlicePort(name=name, port=port),))


@pytest.mark.parametrize(
    ("service", "slices", "reason", "message"),
    [
        (None, (), "ServiceNotFound", f"{NAMED} is not present"),
        (Service(spec=ServiceSpec(ports=(ServicePort(port=444),))), (), "ServicePortError",
         f"{NAMED} is not listening on port 443"),
        (HTTPS, (), "EndpointsNotFound", f"cannot find endpointslices for {NAMED}"),
        (HTTPS, (endpoints(False),), "MissingEndpoints",
         f'endpointslices for {NAMED} have no addresses with port name "https"'),
        (HTTPS, (endpoints(True, "other"), endpoints(True, port=None)), "MissingEndpoints",
         f'endpointslices for {NAMED} have no addresses with port name "https"'),
    ],
)  # fmt: skip
def test_availability_follows_service_and_endpoints(
    service: Service | None, slices: Any, reason: str, message: str
) -> None:
    found = judge(REMOTE, service, slices)
    assert found is not None
    assert (found.status, found.reason, found.message) == ("False", reason, message)


@pytest.mark.parametrize("ready", [True, None])
def test_availability_needs_probe_if_endpoints_are_ready(ready: bool | None) -> None:
    assert judge(REMOTE, HTTPS, (endpoints(False), endpoints(ready))) is None
    assert judge(REMOTE, Service(spec=ServiceSpec(type="ExternalName")), ()) is None


def test_local_api_service_is_available() -> None:
    found = judge(APIService(), None, ())
    assert found is not None
    assert (found.status, found.reason) == ("True", "Local")


async def test_availability_follows_server_going_down_and_up(front: Any, reply: Any, resources: Any) -> None:
    answers = {"status": 200}
    asked: list[Request] = []

    async def handle(request: Request) -> Response:
        asked.append(request)
        return reply(answers["status"], resources)

    assert await front.condition("v1.apps") == ("True", "Local", "Local APIServices are always available")
    await front.register(1)
    message = await front.wait_for_reason("FailedDiscoveryCheck")
    assert message.startswith("failing or missing response from https://localhost:1/apis/x.example.com/v1: ")
    port = await front.serve(handle)
    found = (await front("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1.x.example.com"))[1]
    found["spec"]["service"]["port"] = port
    await front("PUT", "/apis/apiregistration.k8s.io/v1/apiservices/v1.x.example.com", found)
    assert await front.wait_for_reason("Passed") == "all checks passed"
    seen = asked[0]
    assert (seen.path, seen.headers["x-remote-user"]) == ("/apis/x.example.com/v1", "system:kube-aggregator")
    assert (seen.headers["x-remote-group"], seen.certificate.common_name) == ("system:masters", "front-proxy-client")
    answers["status"] = 403
    found = (await front("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1.x.example.com"))[1]
    found["spec"]["versionPriority"] = 11
    await front("PUT", "/apis/apiregistration.k8s.io/v1/apiservices/v1.x.example.com", found)
    url = f"https://localhost:{port}/apis/x.example.com/v1"
    message = await front.wait_for_reason("FailedDiscoveryCheck")
    assert message == f"failing or missing response from {url}: bad status from {url}: 403"
    output = (await front("GET", "/metrics"))[1]
    assert 'aggregator_unavailable_apiservice{name="v1.x.example.com"} 1' in output
    assert 'aggregator_unavailable_apiservice{name="v1.apps"} 0' in output
    reason = 'name="v1.x.example.com",reason="FailedDiscoveryCheck"'
    assert f"aggregator_unavailable_apiservice_total{{{reason}}} 1" in output


async def test_server_with_wrong_certificate_is_unavailable(front: Any, reply: Any, resources: Any) -> None:
    async def handle(_: Request) -> Response:
        return reply(200, resources)

    await front.register(await front.serve(handle, name="other.default.svc"))
    assert "ext.default.svc" in await front.wait_for_reason("FailedDiscoveryCheck")
    unverified = {"caBundle": None, "insecureSkipTLSVerify": True}
    await front.register(await front.serve(handle, name="other.default.svc"), group="y.example.com", **unverified)
    await front.wait_for_reason("Passed", "v1.y.example.com")


async def test_hanging_servers_do_not_delay_other_checks(front: Any, reply: Any, resources: Any) -> None:
    async def hang(_: Request) -> Response:
        await asyncio.sleep(60)
        return reply(200, {})

    async def handle(_: Request) -> Response:
        return reply(200, resources)

    stuck = await front.serve(hang)
    for number in range(10):
        await front.register(stuck, group=f"h{number}.example.com")
    await asyncio.sleep(0.2)
    begun = time.monotonic()
    await front.aggregate(handle)
    assert time.monotonic() - begun < 4.5  # they time out after five seconds
    assert await front.condition("v1.h0.example.com") == ("", "", "")
    assert "no answer within 5 seconds" in await front.wait_for_reason("FailedDiscoveryCheck", "v1.h9.example.com")


async def test_unusable_ca_bundle_is_reported(front: Any) -> None:
    await front.register(1, caBundle="eA==")
    assert "holds no usable PEM certificate" in await front.wait_for_reason("FailedDiscoveryCheck")


async def test_endless_answer_counts_as_available(front: Any) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 100_000
            await asyncio.sleep(0.01)

    async def handle(_: Request) -> Response:
        return Response(200, {"content-type": "application/json"}, drip())

    await front.aggregate(handle)


async def test_condition_written_by_others_is_overwritten(front: Any) -> None:
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps"
    found = (await front("GET", path))[1]
    condition = {"type": "Available", "status": "False", "reason": "Because", "lastTransitionTime": None}
    found["status"]["conditions"] = [{"type": "Other", "status": "True"}, condition]
    assert (await front("PUT", f"{path}/status", found))[0] == 200
    await front.eventually(lambda: front("GET", path), lambda one: "Because" not in str(one))
    shown = (await front("GET", path))[1]["status"]["conditions"]
    assert [(each["type"], each.get("reason", "")) for each in shown] == [("Other", ""), ("Available", "Local")]


async def test_endpoint_routing_flag_connects_to_endpoints(make_front: Any) -> None:
    """The external name of a service has no endpoints."""
    body = {"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "ports": [{"port": 1}]}}
    body["spec"]["externalName"] = "localhost"
    async with make_front("--enable-aggregator-routing=true") as front:
        await front("POST", "/api/v1/namespaces/default/services", body)
        await front.register(1)
        assert await front.wait_for_reason("FailedDiscoveryCheck") == 'unsupported service type "ExternalName"'
