"""Certificate files for kubelet connections: checked at the start and reloaded."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.apis.kubelet.connections import KubeletConnections
from apiserver_stub.apis.kubelet.locations import Kubelet
from apiserver_stub.common.flags import FLAGS, KubeletOptions
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.log import get_logger
from controller_manager.common.serving.tls import issue, make_ca
from controller_manager.common.transport.transport import ConfigError

LOG = "/api/v1/namespaces/default/pods/p/log"


async def lines(request: Request) -> Response:
    return Response(200, {}, request.certificate.common_name.encode() if request.certificate else b"nobody")


async def test_replaced_client_certificate_is_used(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apiserver_stub.apis.kubelet.connections._LOOK_EVERY", 0.0)
    await cluster.kubelet(lines)
    assert await cluster("GET", LOG) == (200, "kube-apiserver")
    cluster.write("client", issue(cluster.clients, "another", client=True))
    assert await cluster("GET", LOG) == (200, "another")
    (cluster.folder / "client.crt").write_text("none")
    assert await cluster("GET", LOG) == (200, "another")
    (cluster.folder / "client.crt").unlink()
    assert await cluster("GET", LOG) == (200, "another")


def connections(**flags: Path | str) -> KubeletConnections:
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    return KubeletConnections(FLAGS.parse(arguments)[KubeletOptions], get_logger("kubelets"))


@pytest.mark.parametrize("content", [None, "none"])
@pytest.mark.parametrize("flag", ["client_certificate", "client_key", "certificate_authority"])
async def test_unusable_file_fails_the_start(tmp_path: Path, flag: str, content: str | None) -> None:
    issue(make_ca("x"), "a", client=True).write(tmp_path / "client_certificate", tmp_path / "client_key")
    (tmp_path / "certificate_authority").write_bytes(make_ca("y").certificate)
    if content is None:
        (tmp_path / flag).unlink()
    else:
        (tmp_path / flag).write_text(content)
    names = ("client_certificate", "client_key", "certificate_authority")
    with pytest.raises(ConfigError, match="--kubelet-"):
        await connections(**{f"kubelet_{name}": tmp_path / name for name in names}).open()


async def test_kubelets_are_not_verified_without_flags() -> None:
    found = connections()
    await found.open()
    origin = found.kubelet(Kubelet("a", 1))
    assert origin.tls is not None
    assert not origin.tls.verify_mode
    await found.close()


async def test_kubelet_of_unknown_ca_gets_no_request(cluster: Any) -> None:
    cluster.kubelets = make_ca("others")
    kubelet, _ = await cluster.kubelet(lines)
    code, _ = await cluster("GET", LOG)
    assert (code, kubelet.asked) == (500, [])


async def test_address_is_first_of_preferred_type(make_cluster: Any) -> None:
    async with make_cluster("--kubelet-preferred-address-types=ExternalIP,InternalIP") as cluster:
        _, server = await cluster.serve(lines)
        kubelet, elsewhere = await cluster.serve(lines, hosts=("192.0.2.8",))
        addresses = [{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "ExternalIP", "address": "192.0.2.8"}]
        status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": elsewhere.port}}}
        await cluster.create("/api/v1/nodes", {"metadata": {"name": "n"}}, status)
        await cluster.pod("p", "n")
        assert await cluster("GET", LOG) == (200, "kube-apiserver")
        assert len(kubelet.asked) == 1
        assert server.port != elsewhere.port


async def test_silent_kubelet_times_out(make_cluster: Any) -> None:
    async with make_cluster("--kubelet-timeout=200ms") as cluster:
        silent = await asyncio.start_server(_hold, "127.0.0.1", 0)
        cluster.stack.callback(silent.close)
        await cluster.node("n", silent.sockets[0].getsockname()[1])
        await cluster.pod("p", "n")
        offer = {"connection": "Upgrade", "upgrade": "SPDY/3.1"}
        code, body = await cluster("GET", LOG)
        assert (code, "timed out" in body["message"]) == (500, True)
        code, body = await cluster("POST", LOG.replace("log", "exec"), **offer)
        assert (code, body["message"]) == (500, "error dialing backend: timed out")
        code, body = await cluster("GET", "/api/v1/nodes/n/proxy/x")
        assert (code, body["reason"]) == (503, "ServiceUnavailable")


async def _hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()
