"""Exec and port forwarding: streams between client and kubelet, permissions, and how they end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade

POD = "/api/v1/namespaces/default/pods/p"
SPDY = {"connection": "Upgrade", "upgrade": "SPDY/3.1"}
FLOOD = b"x" * 65536


async def echo(stream: DuplexStream) -> None:
    while piece := await stream.read(1 << 16):
        await stream.write(piece.upper())


async def switch(request: Request) -> Response:
    return Response(101, {"x-stream-protocol-version": "v4.channel.k8s.io"}, Upgrade(request.headers["upgrade"], echo))


class Client:
    """A client with its own connection that requests a stream."""

    async def ask(self, port: int, url: str, method: str = "POST", upgrade: str = "SPDY/3.1", more: str = "") -> bytes:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        self.writer.write(
            f"{method} {url} HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: {upgrade}\r\n{more}\r\n".encode()
        )
        return await self.reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("url", "path", "query"),
    [
        (
            "exec?command=ls&command=-l%20/&stdin=true&stdout=1&stderr=x&tty=&container=a",
            "/exec/default/p/a",
            (("command", "ls"), ("command", "-l /"), ("error", "1"), ("input", "1"), ("output", "1"), ("tty", "1")),
        ),
        ("attach?stdout=true&stderr=false", "/attach/default/p/a", (("output", "1"),)),
        ("portforward", "/portForward/default/p", ()),
        ("portforward?ports=80,443&ports=8080", "/portForward/default/p", (("port", "80,443,8080"),)),
    ],
)
async def test_exec_stream_is_opened_at_kubelet(cluster: Any, url: str, path: str, query: Any) -> None:
    kubelet, _ = await cluster.kubelet(switch)
    client = Client()
    versions = "x-stream-protocol-version: v4.channel.k8s.io\r\nx-stream-protocol-version: channel.k8s.io\r\n"
    secret = "authorization: Bearer secret\r\nx-remote-user: other\r\ncontent-length: 0\r\n"
    head = await client.ask(await cluster.listen(), f"{POD}/{url}", more=versions + secret)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"upgrade: SPDY/3.1\r\n" in head
    assert b"x-stream-protocol-version: v4.channel.k8s.io\r\n" in head
    client.writer.write(b"abc")
    assert await client.reader.readexactly(3) == b"ABC"
    (asked,) = kubelet.asked
    assert (asked.method, asked.path, asked.query) == ("POST", path, query)
    assert asked.values("x-stream-protocol-version") == ("v4.channel.k8s.io", "channel.k8s.io")
    assert not {"authorization", "x-remote-user"} & set(asked.headers)
    assert asked.certificate.common_name == "kube-apiserver"
    assert asked.headers["x-forwarded-for"] == "127.0.0.1"


@pytest.mark.parametrize("subresource", ["exec", "attach"])
async def test_legacy_websocket_is_forwarded_to_kubelet(cluster: Any, subresource: str) -> None:
    kubelet, _ = await cluster.kubelet(switch)
    client = Client()
    offered = "base64url.bearer.authorization.k8s.io.eA, v4.channel.k8s.io"
    more = f"sec-websocket-protocol: {offered}\r\nsec-websocket-key: k\r\n"
    head = await client.ask(await cluster.listen(), f"{POD}/{subresource}?stdout=1", "GET", "websocket", more)
    assert b"upgrade: websocket\r\n" in head
    (asked,) = kubelet.asked
    assert (asked.method, asked.headers["sec-websocket-protocol"]) == ("GET", "v4.channel.k8s.io")
    assert asked.headers["sec-websocket-key"] == "k"


async def test_kubelet_rejection_is_returned(cluster: Any) -> None:
    async def refuse(request: Request) -> Response:
        status = 200 if "fine" in dict(request.query).get("command", "") else 403
        return Response(status, {"content-type": "text/plain", "x-own": "1"}, b"not so")

    await cluster.kubelet(refuse)
    response = await cluster.send("POST", f"{POD}/exec?command=x", **SPDY)
    assert (response.status, response.body, response.headers["x-own"]) == (403, b"not so", "1")
    code, body = await cluster("POST", f"{POD}/exec?command=fine", **SPDY)
    assert (code, body["message"]) == (500, "invalid upgrade response: status code 200")


async def test_client_disconnect_closes_kubelet_stream(cluster: Any) -> None:
    _, server = await cluster.kubelet(switch)
    client = Client()
    await client.ask(await cluster.listen(), f"{POD}/exec?command=x")
    assert server.connections == 1
    client.writer.close()
    await cluster.eventually(lambda: server.connections == 0)


async def test_kubelet_disconnect_closes_client_stream(cluster: Any) -> None:
    async def farewell(stream: DuplexStream) -> None:
        await stream.write(b"bye")

    async def answer(request: Request) -> Response:
        return Response(101, {}, Upgrade("SPDY/3.1", farewell))

    await cluster.kubelet(answer)
    client = Client()
    await client.ask(await cluster.listen(), f"{POD}/exec?command=x")
    assert await client.reader.read() == b"bye"


async def test_unread_stream_applies_backpressure(cluster: Any) -> None:
    written = 0

    async def flood(stream: DuplexStream) -> None:
        nonlocal written
        while True:
            await stream.write(FLOOD)
            written += 1

    async def answer(request: Request) -> Response:
        return Response(101, {}, Upgrade("SPDY/3.1", flood))

    await cluster.kubelet(answer)
    client = Client()
    await client.ask(await cluster.listen(), f"{POD}/exec?command=x")
    client.writer.transport.pause_reading()
    before = -1
    while before != written:
        before = written
        await asyncio.sleep(0.05)
    assert written < 400  # buffers of the kernel and of this test's proxy are not under our control
    client.writer.transport.abort()


async def test_exec_over_websocket_needs_create_permission(make_cluster: Any) -> None:
    """A WebSocket is requested by GET, but needs the permission of a POST."""
    async with make_cluster("--authorization-mode=RBAC") as cluster:
        kubelet, _ = await cluster.kubelet(switch)
        role = {"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}]}
        root = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        await cluster.create(f"{root}/roles", role)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
        subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "joe"}]
        binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
        await cluster.create(f"{root}/rolebindings", binding)
        as_joe = {"impersonate_user": "joe", "connection": "Upgrade", "upgrade": "websocket"}
        code, body = await cluster("GET", f"{POD}/exec?command=x", **as_joe)
        assert (code, body["reason"], kubelet.asked) == (403, "Forbidden", [])
        role["rules"][0]["verbs"] = ["get", "create"]
        assert (await cluster("PUT", f"{root}/roles/r", role))[0] == 200
        response = await cluster.send("GET", f"{POD}/exec?command=x", **as_joe)
        assert response.status == 101


async def test_admission_sees_connect_options(cluster: Any) -> None:
    policy = {
        "metadata": {"name": "no-ls"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]}
                ]
            },
            "validations": [{"expression": "!('ls' in object.command)"}],
        },
    }
    root = "/apis/admissionregistration.k8s.io/v1"
    await cluster.create(f"{root}/validatingadmissionpolicies", policy)
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "no-ls", "validationActions": ["Deny"]}}
    await cluster.create(f"{root}/validatingadmissionpolicybindings", binding)
    await cluster.kubelet(switch)
    assert (await cluster("POST", f"{POD}/exec?command=ls", **SPDY))[0] == 422
    assert (await cluster.send("POST", f"{POD}/exec?command=date", **SPDY)).status == 101


async def test_open_streams_are_counted(cluster: Any) -> None:
    await cluster.kubelet(switch)
    client = Client()
    await client.ask(await cluster.listen(), f"{POD}/exec?command=x")
    labels = {
        "verb": "CONNECT", "group": "", "version": "v1", "resource": "pods", "subresource": "exec",
        "scope": "resource", "component": "apiserver",
    }  # fmt: skip
    assert await cluster.counted("apiserver_longrunning_requests", **labels) == 1
    client.writer.close()
    for _ in range(500):
        if not await cluster.counted("apiserver_longrunning_requests", **labels):
            break
        await asyncio.sleep(0.01)
    assert await cluster.counted("apiserver_longrunning_requests", **labels) == 0
    assert await cluster.counted("apiserver_request_total", **labels, dry_run="", code="101") == 1


async def test_audit_logs_start_and_end_of_stream(make_cluster: Any, tmp_path: Path) -> None:
    policy, log = tmp_path / "policy.json", tmp_path / "audit.log"
    rules = [{"level": "Metadata", "resources": [{"resources": ["pods/exec"]}]}, {"level": "None"}]
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking")
    async with make_cluster(*flags) as cluster:
        await cluster.kubelet(switch)
        client = Client()
        await client.ask(await cluster.listen(), f"{POD}/exec?command=x")
        assert [event["stage"] for event in audit_events(log)] == ["RequestReceived", "ResponseStarted"]
        client.writer.close()
        await cluster.eventually(lambda: len(audit_events(log)) == 3)
        last = audit_events(log)[-1]
        assert (last["stage"], last["verb"], last["responseStatus"]["code"]) == ("ResponseComplete", "create", 101)
        assert last["objectRef"]["subresource"] == "exec"
        assert last["requestURI"].endswith("/exec?command=x")


def audit_events(log: Path) -> list[Any]:
    return [json.loads(line) for line in log.read_text().splitlines()]
