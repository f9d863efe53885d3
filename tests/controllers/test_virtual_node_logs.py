"""Generated container logs, served like a kubelet does."""

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import NODES, NodeStatus
from controller_manager.common.api.errors import BadRequest, NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import format_time
from controller_manager.testing import Cluster
from controllers.virtual_node.logs import log_of, log_options, run_of
from controllers.virtual_node.pods import POD, VirtualPod
from tests.e2e.conftest import free_port

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
STARTS = "simulated: main starts, of the image app:1"
WAITING: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}


def at(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(NOW + seconds, UTC))


def running(since: float) -> dict[str, Any]:
    return {"running": {"startedAt": at(since)}}


def ended(since: float, until: float, code: int = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "startedAt": at(since), "finishedAt": at(until)}}


def pod(state: dict[str, Any], last: dict[str, Any] | None = None) -> VirtualPod:
    status = {"name": "main", "ready": True, "restartCount": 0, "image": "app:1", "imageID": "", "state": state}
    tree = {"metadata": {"name": "p"}, "status": {"containerStatuses": [{**status, "lastState": last or {}}]}}
    return POD.decode(msgspec.json.encode(tree))


def log_lines(tree: VirtualPod, **query: str) -> list[str]:
    options = log_options(tuple(query.items()), NOW)
    return [line.text for line in log_of(run_of(tree, "main", previous=options.previous), options, NOW)]


ROWS: dict[str, tuple[VirtualPod, dict[str, str], list[str]]] = {
    "just started": (pod(running(0)), {}, [STARTS]),
    "runs": (pod(running(-25)), {}, [STARTS, "simulated: up for 10 s", "simulated: up for 20 s"]),
    "the last line": (pod(running(-25)), {"tailLines": "1"}, ["simulated: up for 20 s"]),
    "no lines": (pod(running(-25)), {"tailLines": "0"}, []),
    "since seconds": (pod(running(-25)), {"sinceSeconds": "6"}, ["simulated: up for 20 s"]),
    "since a time": (pod(running(-25)), {"sinceTime": at(-16)}, ["simulated: up for 10 s", "simulated: up for 20 s"]),
    "has ended": (pod(ended(-25, -12, 3)), {}, [STARTS, "simulated: up for 10 s", "simulated: ends with exit code 3"]),
    "the previous run": (
        pod(running(-1), ended(-9, -4)),
        {"previous": "true"},
        [STARTS, "simulated: ends with exit code 0"],
    ),
    "in backoff": (
        pod({"waiting": {"reason": "CrashLoopBackOff"}}, ended(-9, -4, 1)),
        {},
        [STARTS, "simulated: ends with exit code 1"],
    ),
}


@pytest.mark.parametrize(("tree", "query", "expected"), ROWS.values(), ids=ROWS.keys())
def test_container_logs(tree: VirtualPod, query: dict[str, str], expected: list[str]) -> None:
    assert log_lines(tree, **query) == expected


@pytest.mark.parametrize(
    ("tree", "query", "problem"),
    [
        (pod(WAITING), {}, "is waiting to start: ContainerCreating"),
        (pod(running(0)), {"previous": "true"}, "previous terminated container"),
        (pod(running(0)), {"tailLines": "x"}, "tailLines is not a number"),
    ],
)
def test_missing_logs_raise_bad_request(tree: VirtualPod, query: dict[str, str], problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        log_lines(tree, **query)


def test_log_lines_have_timestamps_on_request() -> None:
    options = log_options((("timestamps", "true"),), NOW)
    (line,) = log_of(run_of(pod(running(0)), "main", previous=False), options, NOW)
    assert line.encode(timestamp=True) == f"2026-01-01T00:00:00.000000000Z {STARTS}\n".encode()


async def ask(port: int, target: str, method: str = "GET") -> tuple[int, str]:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.flag("virtual-node-port", "virtual-node-bind-address")
async def test_one_port_serves_all_virtual_kubelets() -> None:
    port = free_port()
    node = Key("", "virtual-node-1")
    flags = ("--leader-elect=false", "--controllers=virtual-node-controller", "--virtual-nodes=1")

    async def reached_at(port: int) -> NodeStatus:
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(NotFound):
                    status = (await cluster.client.get(NODES, node)).status
                    if status.daemon_endpoints.kubelet_endpoint.port == port:
                        return status
                await asyncio.sleep(0.01)

    async with Cluster() as cluster:
        first = await cluster.manage(*flags, f"--virtual-node-port={port}")
        status = await reached_at(port)
        assert ("InternalDNS", "localhost") in [(one.type, one.address) for one in status.addresses]
        assert await ask(port, "/healthz") == (200, "ok")
        assert (await ask(port, "/containerLogs/default/p/main"))[0] == 400
        status, text = await ask(port, "/exec/default/p/main?command=ls", "POST")
        assert (status, "nothing runs here" in text) == (400, True)
        assert (await ask(port, "/elsewhere"))[0] == 404
        await first.stop()
        await cluster.manage(*flags, "--virtual-node-bind-address=")  # serves nothing
        await reached_at(0)
