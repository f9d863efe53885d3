"""Proxies of pods, services and nodes: forwarded requests and returned answers."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade

ROOT = "/api/v1/namespaces/default"
CLUSTER = "192.0.2.7"
PAGE = b'<html><a href="/x">x</a><a href="https://example.com/x">y</a></html>'


async def echo_request(request: Request) -> Response:
    """Answer with a description of the request."""
    if "upgrade" in request.headers:
        return Response(101, {}, Upgrade(request.headers["upgrade"], _echo))
    headers = {
        "method": request.method, "target": request.target, "body": request.body.decode(),
        "headers": dict(request.headers),
    }  # fmt: skip
    return Response(418, {"x-own": "1", "access-control-allow-origin": "*"}, json.dumps(headers).encode())


async def _echo(stream: DuplexStream) -> None:
    while piece := await stream.read(1 << 16):
        await stream.write(piece.upper())


async def serve_pod(cluster: Any, answer: Any = echo_request, *, secure: bool = False) -> tuple[Any, int]:
    """Serve the pod `p` of the service `s`; return the server and its port."""
    found, server = await cluster.serve(answer, secure=secure)
    await cluster.pod("p", ip=CLUSTER, port=server.port)
    spec = {"ports": [{"name": "web", "port": 80}, {"name": "other", "port": 81}]}
    await cluster.create(f"{ROOT}/services", {"metadata": {"name": "s"}, "spec": spec})
    addresses = [{"ip": CLUSTER, "targetRef": {"kind": "Pod", "name": "p", "namespace": "default"}}]
    subsets = [{"addresses": addresses, "ports": [{"name": "web", "port": server.port}]}]
    await cluster.create(f"{ROOT}/endpoints", {"metadata": {"name": "s"}, "subsets": subsets})
    return found, server.port


NAMES = ("pods/p", "pods/http:p:{port}", "pods/p:{port}", "services/s:web", "services/s:80")


async def test_request_is_forwarded_unchanged(cluster: Any) -> None:
    _, port = await serve_pod(cluster)
    for name in NAMES:
        at = f"{ROOT}/{name.format(port=port)}/proxy"
        response = await cluster.send(
            "POST", f"{at}/a/b?q=1%202+3&r", b"text", authorization="Bearer x", host="front:1"
        )
        answer = json.loads(response.body)
        assert (response.status, response.headers["x-own"]) == (418, "1")
        assert "access-control-allow-origin" not in response.headers
        assert (answer["method"], answer["target"], answer["body"]) == ("POST", "/a/b?q=1%202+3&r", "text")
        assert answer["headers"]["host"] == "front:1"
        assert answer["headers"]["x-forwarded-uri"] == f"{at}/a/b"
        assert "authorization" not in answer["headers"]


async def test_every_method_is_forwarded(cluster: Any) -> None:
    pod, _ = await serve_pod(cluster)
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"):
        response = await cluster.send(method, f"{ROOT}/pods/p/proxy/")
        assert (response.status, pod.asked[-1].method) == (418, method)
        if method == "HEAD":
            assert [chunk async for chunk in response.body] == []


PATHS = {
    "proxy/": "/",
    "proxy/a/": "/a/",
    "proxy/a//b/./c/../d": "/a/b/d",
    "proxy/../../x": "/x",
    "proxy/proxy/x": "/proxy/x",
    "proxy/a b/é%": "/a%20b/%C3%A9%25",
    "proxy/x:y@z=1&2+3;4,5$~!*'()": "/x:y@z=1&2+3;4,5$~%21%2A%27%28%29",
    "proxy/a%2Fb/%25/%3Fc%0D%0Ad": "/a/b/%25/%3Fc%0D%0Ad",
}


async def test_path_after_proxy_is_forwarded(cluster: Any) -> None:
    _, port = await serve_pod(cluster)
    for asked, target in PATHS.items():
        code, body = await cluster("POST", f"{ROOT}/pods/p:{port}/{asked}")
        assert (code, body["target"]) == (418, target)


async def test_pod_may_be_named_like_the_subresource(cluster: Any) -> None:
    _, server = await cluster.serve(echo_request, secure=False)
    await cluster.pod("proxy", ip=CLUSTER, port=server.port)
    assert (await cluster("GET", f"{ROOT}/pods/proxy/proxy/proxy/a"))[1]["target"] == "/proxy/a"


async def test_https_pod_gets_no_credentials(cluster: Any) -> None:
    pod, port = await serve_pod(cluster, secure=True)
    for name in (f"pods/https:p:{port}", "services/https:s:web"):
        assert (await cluster("GET", f"{ROOT}/{name}/proxy/x"))[0] == 401
    assert pod.asked == []


async def test_node_proxy_reaches_kubelet_or_other_port(cluster: Any) -> None:
    kubelet, server = await cluster.kubelet(echo_request)
    other, elsewhere = await cluster.serve(echo_request, secure=False)
    for name in ("n", f"n:{server.port}", f"http:n:{server.port}", "https:n:"):
        assert (await cluster("GET", f"/api/v1/nodes/{name}/proxy/metrics?x=y"))[1]["target"] == "/metrics?x=y"
    assert {asked.certificate.common_name for asked in kubelet.asked} == {"kube-apiserver"}
    assert (await cluster("GET", f"/api/v1/nodes/http:n:{elsewhere.port}/proxy/logs/"))[1]["target"] == "/logs/"
    assert len(other.asked) == 1


LOCATIONS = {
    "/b": "{at}/b",
    "/b/?q=1": "{at}/b/?q=1",
    "b": "b",
    "http://{host}/b": "{at}/b",
    "http://front:1/b": "http://front:1{at}/b",
    "https://example.com/b": "https://example.com/b",
    "{at}/b": "{at}/b",
}


async def test_redirects_are_rewritten_to_the_proxy(cluster: Any) -> None:
    given: dict[str, str] = {}

    async def away(request: Request) -> Response:
        return Response(302, given)

    _, port = await serve_pod(cluster, away)
    words = {"at": f"{ROOT}/pods/p/proxy", "host": f"{CLUSTER}:{port}"}
    for location, seen in LOCATIONS.items():
        given["location"] = location.format(**words)
        response = await cluster.send("GET", f"{ROOT}/pods/p/proxy/a", host="front:1")
        assert (response.status, response.headers["location"]) == (302, seen.format(**words))
    given["location"] = "http://["
    assert (await cluster("GET", f"{ROOT}/pods/p/proxy/a"))[0] == 500


async def test_links_in_pages_are_rewritten_to_the_proxy(cluster: Any) -> None:
    encoding = ""

    async def page(request: Request) -> Response:
        named = {"content-encoding": encoding} if encoding else {}
        body = gzip.compress(PAGE) if encoding == "gzip" else PAGE
        return Response(200, {"content-type": "text/html; charset=utf-8", **named}, body)

    await serve_pod(cluster, page)
    for encoding in ("", "gzip", "br"):
        response = await cluster.send("GET", f"{ROOT}/pods/p/proxy/")
        found = b"".join([chunk async for chunk in response.body])
        found = gzip.decompress(found) if encoding == "gzip" else found
        wanted = PAGE if encoding == "br" else PAGE.replace(b'"/x"', f'"{ROOT}/pods/p/proxy/x"'.encode())
        assert found == wanted


async def test_protocol_upgrade_is_forwarded(cluster: Any) -> None:
    await serve_pod(cluster)
    port = await cluster.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    offer = "host: a\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n"
    writer.write(f"GET {ROOT}/services/s:web/proxy/talk HTTP/1.1\r\n{offer}".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    writer.write(b"abc")
    assert await reader.readexactly(3) == b"ABC"
    writer.close()


async def test_large_bodies_are_streamed_both_ways(cluster: Any) -> None:
    async def back(request: Request) -> Response:
        size = len(request.body)

        async def body() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield b"x" * 65536

        return Response(200, {"x-size": str(size)}, body())

    await serve_pod(cluster, back)
    port = await cluster.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size = 2_000_000
    head = f"POST {ROOT}/pods/p/proxy/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n"
    writer.write(head.encode() + b"y" * size)
    assert f"x-size: {size}\r\n".encode() in await reader.readuntil(b"\r\n\r\n")
    assert (await reader.read()).count(b"x") == 64 * 65536
    writer.close()


async def test_service_proxy_picks_any_endpoint_backed_by_a_pod(cluster: Any) -> None:
    _, server = await cluster.serve(echo_request, secure=False)
    await cluster.pod("p", ip=CLUSTER, port=server.port)
    await cluster.create(f"{ROOT}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    pod = {"kind": "Pod", "name": "p", "namespace": "default"}
    addresses: list[Any] = [{"ip": "192.0.2.8"}, {"ip": "192.0.2.9", "targetRef": pod}]
    addresses += [{"ip": CLUSTER, "targetRef": pod}, {"ip": "192.0.2.10", "targetRef": {**pod, "namespace": "other"}}]
    subsets = [{"addresses": addresses, "ports": [{"port": server.port}]}]
    await cluster.create(f"{ROOT}/endpoints", {"metadata": {"name": "s"}, "subsets": subsets})
    for _ in range(20):
        assert (await cluster("GET", f"{ROOT}/services/s/proxy/"))[0] == 418
