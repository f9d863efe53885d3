"""An API server with egress selectors: which connections go through which proxy."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.webhooks.client import WebhookClient, WebhookConfig, WebhookError
from apiserver_stub.webhooks.egress import EgressSelector
from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.transport.transport import HandlerTransport
from tests.apiserver_stub.apis.aggregation.conftest import ADMIN, RESOURCES, Front, answer
from tests.apiserver_stub.webhooks.egress.conftest import Egress
from tests.apiserver_stub.webhooks.egress.test_http_connect import over_tcp
from tests.apiserver_stub.webhooks.egress.test_konnectivity import Konnectivity
from tests.apiserver_stub.webhooks.test_client import Resolver
from tests.apiserver_stub.webhooks.webhook_server import Webhook
from tests.controller_manager.common.transport.grpc_servers import grpc_server

ROOT = "/apis/x.example.com/v1"


async def extension(request: Request) -> Response:
    request = await request.received("x")
    if request.path.endswith("/talk"):
        return Response(101, {}, Upgrade("websocket", echo))
    return answer(200, RESOURCES if request.path == ROOT else {"size": len(request.body)})


async def echo(stream: DuplexStream) -> None:
    while piece := await stream.read(65536):
        await stream.write(piece)


@pytest.mark.needs("tinyproxy", "haproxy")
async def test_aggregated_apis_are_reached_through_cluster_proxy(egress: Egress, tmp_path: Path) -> None:
    secured, _ = await egress.haproxy(behind=await egress.tinyproxy())
    file = egress.write(cluster=over_tcp(secured, egress.client(), "localhost"))
    async with Front(tmp_path, f"--egress-selector-config-file={file}") as front:
        await front.aggregate(extension)
        assert await front("GET", ROOT) == (200, RESOURCES)
        assert await front("PUT", f"{ROOT}/namespaces/a/foos/b", bytes(300_000)) == (200, {"size": 300_000})
        dials = front.runtime.registry.get_sample_value(
            "apiserver_egress_dialer_dial_duration_seconds_count", {"protocol": "http_connect", "transport": "tcp"}
        )
        assert dials


async def test_aggregated_apis_are_reached_through_konnectivity(egress: Egress, tmp_path: Path) -> None:
    proxy, path = Konnectivity(), f"{egress.folder}/k"
    file = egress.write(cluster={"proxyProtocol": "GRPC", "transport": {"uds": {"udsName": path}}})
    async with (
        grpc_server(f"unix:{path}", "konnectivity", talks={"Proxy": proxy}),
        Front(tmp_path, f"--egress-selector-config-file={file}") as front,
    ):
        await front.aggregate(extension)
        assert await front("GET", ROOT) == (200, RESOURCES)
        assert await front("PUT", f"{ROOT}/namespaces/a/foos/b", bytes(300_000)) == (200, {"size": 300_000})
        assert set(proxy.dialed) == {f"localhost:{front.behind[0].port}"}
        offer = {"upgrade": "websocket", "connection": "upgrade"}
        transport = HandlerTransport(front.api.handle, ADMIN)
        response, stream = await transport.upgrade(Request("GET", f"{ROOT}/namespaces/a/foos/talk", (), offer))
        assert response.status == 101
        assert stream is not None
        await stream.write(b"hello")
        assert await stream.read(100) == b"hello"
        await stream.aclose()
        await transport.close()


async def test_aggregated_api_without_proxy_is_unavailable(egress: Egress, tmp_path: Path) -> None:
    file = egress.write(cluster=over_tcp(1))
    async with Front(tmp_path, f"--egress-selector-config-file={file}") as front:
        await front.register(await front.serve(extension))
        assert "failed to connect to the proxy 127.0.0.1:1" in await front.wait_for_reason("FailedDiscoveryCheck")


class RecordingDialer:
    """A dialer that records targets, and connects itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def dial(self, host: str, port: int) -> Any:
        import socket

        self.asked.append((host, port))
        found = socket.socket()
        found.setblocking(False)
        await asyncio.get_running_loop().sock_connect(found, ("127.0.0.1", port))
        return found


async def test_service_and_url_webhooks_use_different_networks(tmp_path: Path) -> None:
    control_plane, cluster, resolver = RecordingDialer(), RecordingDialer(), Resolver()
    async with Webhook(tmp_path) as hook:
        client = WebhookClient(resolver, egress=EgressSelector(control_plane, cluster))
        config = WebhookConfig.of(hook.config)
        await client.post(config, b"{}", 5)
        assert (control_plane.asked, cluster.asked) == ([("127.0.0.1", hook.port)], [])
        for name in ("hook", "kubernetes"):
            service = WebhookConfig(name, 443, namespace="default", ca=config.ca)
            resolver.known["default", name, 443] = (
                "10.9.9.9" if name == "hook" else "127.0.0.1",
                hook.port,
                "127.0.0.1",
            )
            await client.post(service, b"{}", 5)
        assert cluster.asked == [("10.9.9.9", hook.port)]
        assert len(control_plane.asked) == 1
        await client.close()


async def test_proxy_failure_is_reported_as_webhook_failure(egress: Egress) -> None:
    client = WebhookClient(Resolver(), egress=egress.selector(controlplane=over_tcp(1)))
    with pytest.raises(WebhookError, match=r"failed to connect to the proxy"):
        await client.post(WebhookConfig("hook.example"), b"{}", 5)
    await client.close()
