"""The HTTP transport against a real server with TLS on loopback."""

import asyncio
import gzip
import stat
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller_manager.api.core import PODS
from controller_manager.api.errors import InternalError
from controller_manager.api.resource import Key
from controller_manager.api.wire import Request
from controller_manager.client import (
    Client,
    ClientConfig,
    ConfigError,
    HttpTransport,
    TransportError,
)
from controller_manager.client.config import ExecPlugin, Identity
from controller_manager.client.kubeconfig import in_cluster
from controller_manager.transport import http, response_parser
from controller_manager.transport.transport import Credential

KEY = Key("default", "a")
GET = Request("GET", "/api/v1/pods")


@asynccontextmanager
async def transport(config: ClientConfig, **options: Any) -> AsyncIterator[HttpTransport]:
    found = HttpTransport(config, **options)
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
def config(backend: Any, authority: Any) -> ClientConfig:
    return ClientConfig(server=backend.url, ca=authority.pem)


async def test_a_request_arrives_as_it_was_meant(backend: Any, config: ClientConfig) -> None:
    seen: list[Any] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((request.method, request.raw_path, await request.read(), request.headers))
        return web.Response(status=201, body=b"{}", headers={"Warning": "careful"})

    backend.handler = handler
    request = Request(
        "POST", "/api/v1/x y/ü", (("a", "b&c"), ("d", "+")), {"content-type": "application/json"}, b'{"a":1}'
    )
    async with transport(replace(config, server=backend.url + "/base/", identity=Identity(token="t"))) as sender:
        answer = await sender.send(request)
    assert (answer.status, answer.body, answer.headers["warning"]) == (201, b"{}", "careful")
    [(method, path, body, headers)] = seen
    assert (method, path, body) == ("POST", "/base/api/v1/x%20y/%C3%BC?a=b%26c&d=%2B", b'{"a":1}')
    assert headers["Authorization"] == "Bearer t"
    assert headers["Content-Type"] == "application/json"
    assert "Accept-Encoding" not in headers


async def test_redirects_are_not_followed(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "https://elsewhere.example/"})

    backend.handler = handler
    async with transport(config) as sender:
        assert (await sender.send(GET)).status == 302


async def test_a_server_of_another_authority_is_not_trusted(backend: Any, config: ClientConfig) -> None:
    async with transport(replace(config, ca=b"")) as sender:
        with pytest.raises(TransportError, match="certificate"):
            await sender.send(GET)


async def test_names_are_checked_unless_told_otherwise(backend: Any, config: ClientConfig) -> None:
    named = replace(config, tls_server_name="api.example")
    wrong = replace(config, tls_server_name="other.example")
    insecure = replace(config, ca=b"", insecure=True)
    async with transport(named) as first, transport(wrong) as second, transport(insecure) as third:
        assert (await first.send(GET)).status == 404
        with pytest.raises(TransportError):
            await second.send(GET)
        assert (await third.send(GET)).status == 404


async def test_the_client_certificate_is_shown_and_followed(
    backend: Any, config: ClientConfig, authority: Any, tmp_path: Path
) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        shown = request.transport.get_extra_info("peercert")
        return web.Response(text=dict(pair for (pair,) in shown["subject"])["commonName"], status=401)

    backend.handler = handler
    files = [tmp_path / "client.crt", tmp_path / "client.key"]

    def write(name: str) -> None:
        for path, data in zip(files, authority.issue(name), strict=True):
            path.write_bytes(data)

    write("first")
    identity = Identity(certificate_file=str(files[0]), key_file=str(files[1]))
    async with transport(replace(config, identity=identity)) as sender:
        assert (await sender.send(GET)).body == b"first"
        write("second")
        assert (await sender.send(GET)).body == b"second"
    certificate, key = authority.issue("third")
    async with transport(replace(config, identity=Identity(certificate=certificate, key=key))) as sender:
        assert (await sender.send(GET)).body == b"third"


async def test_a_pair_that_is_half_renewed_is_not_used(
    backend: Any, config: ClientConfig, authority: Any, tmp_path: Path
) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        return web.Response(text=str(request.transport.get_extra_info("peercert")["subject"]), status=401)

    backend.handler = handler
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    first, second = authority.issue("first"), authority.issue("second")
    certificate.write_bytes(first[0])
    key.write_bytes(first[1])
    identity = Identity(certificate_file=str(certificate), key_file=str(key))
    async with transport(replace(config, identity=identity)) as sender:
        await sender.send(GET)
        certificate.write_bytes(second[0])
        assert b"first" in (await sender.send(GET)).body
        key.write_bytes(second[1])
        assert b"second" in (await sender.send(GET)).body


async def test_a_comment_among_authorities_may_be_in_any_language(backend: Any, config: ClientConfig) -> None:
    noted = "# Authorité\n".encode() + config.ca
    async with transport(replace(config, ca=noted)) as sender:
        assert (await sender.send(GET)).status == 404


async def test_unusable_authorities_and_pairs_are_refused_at_once(authority: Any) -> None:
    with pytest.raises(ConfigError, match="certificate-authority"):
        HttpTransport(ClientConfig(server="https://x", ca=b"no certificate"))
    certificate, _ = authority.issue("a")
    _, other = authority.issue("b")
    with pytest.raises(ConfigError, match="client-key"):
        HttpTransport(ClientConfig(server="https://x", identity=Identity(certificate=certificate, key=other)))


def accepting(*tokens: str) -> Any:
    """A handler that accepts some tokens, counting requests."""
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(status=200 if seen[-1] in {f"Bearer {token}" for token in tokens} else 401)

    return handler, seen


async def test_a_rotated_token_is_read_after_401(backend: Any, config: ClientConfig, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    async with transport(replace(config, identity=Identity(token_file=str(token)))) as sender:
        backend.handler, _ = accepting("old")
        assert (await sender.send(GET)).status == 200
        backend.handler, seen = accepting("new")
        assert (await sender.send(GET)).status == 401
        assert seen == ["Bearer old"]
        token.write_text("new\n")
        assert (await sender.send(GET)).status == 200
        assert seen == ["Bearer old", "Bearer old", "Bearer new"]


async def test_no_credentials_is_a_transport_error_that_names_the_file(config: ClientConfig) -> None:
    async with transport(replace(config, identity=Identity(token_file="/nowhere/token"))) as sender:
        with pytest.raises(TransportError, match="tokenFile /nowhere/token can't be read"):
            await sender.send(GET)


async def test_an_exec_plugin_is_asked_once_and_again_after_401(
    backend: Any, config: ClientConfig, tmp_path: Path
) -> None:
    script = tmp_path / "plugin"
    runs = tmp_path / "runs"
    script.write_text(
        f"""#!{sys.executable}
import json, os, sys
open({str(runs)!r}, "a").write(".")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert info["spec"]["interactive"] is False and info["spec"]["cluster"]["server"] == {config.server!r}
token = sys.argv[1] + os.environ["EXTRA"] + str(os.path.getsize({str(runs)!r}))
print(json.dumps({{"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": {{"token": token}}}}))
"""
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    plugin = ExecPlugin(str(script), args=("t",), env=(("EXTRA", "-"),), provide_cluster_info=True)
    async with transport(replace(config, identity=Identity(plugin=plugin))) as sender:
        backend.handler, seen = accepting("t-1")
        answers = await asyncio.gather(*(sender.send(GET) for _ in range(5)))
        assert {answer.status for answer in answers} == {200}
        assert set(seen) == {"Bearer t-1"}
        backend.handler, _ = accepting("t-2")
        assert (await sender.send(GET)).status == 200
    assert runs.stat().st_size == 2


async def test_a_plugin_that_fails_is_named_without_its_output(config: ClientConfig, tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    script.write_text("#!/bin/sh\necho secret\nexit 3\n")
    script.chmod(0o700)
    for plugin, problem in (
        (ExecPlugin(str(script)), "failed with exit status 3"),
        (ExecPlugin(str(tmp_path / "missing"), install_hint="get it"), "No such file.*get it"),
        (ExecPlugin("/bin/echo", args=("secret",)), "printed no ExecCredential: it is not JSON"),
    ):
        async with transport(replace(config, identity=Identity(plugin=plugin))) as sender:
            with pytest.raises(TransportError, match=problem) as caught:
                await sender.send(GET)
        assert "secret" not in str(caught.value)


async def test_nobody_there_is_a_transport_error(config: ClientConfig) -> None:
    async with transport(ClientConfig(server="http://127.0.0.1:1")) as sender:
        with pytest.raises(TransportError, match=r"^GET http://127\.0\.0\.1:1/api/v1/pods: .*onnect") as caught:
            await sender.send(GET)
    assert "ssl" not in str(caught.value)


async def test_silence_ends_a_request_and_the_opening_of_a_watch(backend: Any, config: ClientConfig) -> None:
    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response()

    backend.handler = silent
    async with transport(config, read_timeout=0.05) as sender:
        with pytest.raises(TransportError, match="timed out"):
            await sender.send(GET)
        with pytest.raises(TransportError, match="timed out"):
            await sender.send(Request("GET", "/api/v1/pods", (("watch", "1"),)))


EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"%s"}}}\n'


async def test_a_watch_streams_long_lines_and_outlives_silence(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % b"a")
        await asyncio.sleep(0.7)
        await response.write(EVENT % (b"b" * 3_000_000))
        await response.write_eof()
        return response

    backend.handler = handler
    async with transport(config, read_timeout=0.5) as sender:
        names = [event.object.metadata.name async for event in Client(sender).watch(PODS)]
    assert names == ["a", "b" * 3_000_000]


async def test_a_connection_dropped_within_an_event_is_a_transport_error(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % b"a" + (EVENT % b"b")[:20])
        assert request.transport is not None
        request.transport.close()
        return response

    backend.handler = handler
    names = []

    async def follow(client: Client) -> None:
        async for event in client.watch(PODS):
            names.append(event.object.metadata.name)  # noqa: PERF401 - what came before the drop counts

    async with transport(config) as sender:
        with pytest.raises(TransportError):
            await follow(Client(sender))
    assert names == ["a"]


async def test_closing_a_watch_closes_its_connection(backend: Any, config: ClientConfig) -> None:
    gone = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % b"a")
        try:
            await asyncio.sleep(300)
        finally:
            gone.set()
        return response

    backend.handler = handler
    async with transport(config) as sender:
        async with aclosing(Client(sender).watch(PODS)) as events:
            assert (await anext(events)).object.metadata.name == "a"
        async with asyncio.timeout(30):
            await gone.wait()


async def test_many_watches_hold_up_no_request(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=b'{"metadata":{"name":"a"}}')
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % b"a")
        await asyncio.sleep(300)
        return response

    backend.handler = handler
    async with transport(config, connections=1) as sender:
        client = Client(sender)
        watches = [client.watch(PODS) for _ in range(4)]
        async with asyncio.timeout(30):
            for watch in watches:
                await anext(watch)
            assert (await client.get(PODS, KEY)).metadata.name == "a"
        for watch in watches:
            await watch.aclose()


async def test_a_body_that_ends_early_is_a_transport_error(backend: Any, config: ClientConfig) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    backend.handler = handler
    async with transport(config) as sender:
        with pytest.raises(TransportError):
            await sender.send(GET)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("query", [(), (("watch", "1"), ("fails", "1"))])
async def test_an_endless_body_is_given_up(
    backend: Any, config: ClientConfig, monkeypatch: pytest.MonkeyPatch, status: int, query: Any
) -> None:
    for module in (http, response_parser):
        monkeypatch.setattr(module, "LARGEST_BODY", 1_000_000)

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=500 if query else status)
        await response.prepare(request)
        while True:
            await response.write(b"x" * 100_000)
            await asyncio.sleep(0)

    backend.handler = endless
    async with transport(config) as sender:
        with pytest.raises(TransportError, match="larger than 1000000 bytes"):
            await sender.send(Request("GET", GET.path, query))


async def test_what_comes_compressed_unasked_is_not_unpacked(backend: Any, config: ClientConfig) -> None:
    packed = gzip.compress(b" " * 1_000_000)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    backend.handler = handler
    async with transport(config) as sender:
        assert (await sender.send(GET)).body == packed
        with pytest.raises(InternalError, match="unreadable"):
            await Client(sender).get(PODS, KEY)


def test_secrets_stay_out_of_representations() -> None:
    plugin = ExecPlugin("p", env=(("A", "secret"),))
    identity = Identity(token="secret", certificate=b"secret", key=b"secret", plugin=plugin)
    assert "secret" not in repr(ClientConfig(server="https://x", identity=identity, proxy_url="http://u:secret@p"))


async def test_siblings_share_connections_but_no_credentials(
    backend: Any, config: ClientConfig, authority: Any, tmp_path: Path
) -> None:
    seen: list[tuple[Any, Any, bool]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        shown = bool(request.transport.get_extra_info("peercert"))
        seen.append((request.transport.get_extra_info("peername"), request.headers.get("Authorization"), shown))
        return web.Response(body=b"{}")

    def holder(token: str) -> Any:
        async def obtain(_: float) -> Credential:
            return Credential(token=token)

        return obtain

    backend.handler = handler
    certificate, key = authority.issue("the process")
    process = Identity(certificate=certificate, key=key, token="process")
    async with transport(replace(config, identity=process)) as first:
        siblings = [first.with_credentials(holder("one")), first.with_credentials(holder("two"))]
        for sender in (first, *siblings, first):
            await sender.send(GET)
        for one in siblings:
            await one.close()
            await one.close()
        await first.send(GET)
    (own, *_), (one, *_), (two, *_), (again, *_), (last, *_) = seen
    assert own == again == last != one == two
    assert [told[1:] for told in seen[:3]] == [("Bearer process", True), ("Bearer one", False), ("Bearer two", False)]


async def test_the_last_to_close_closes_the_connections(backend: Any, config: ClientConfig) -> None:
    asked = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        await asyncio.sleep(300)
        return web.Response()

    async def nothing(_: float) -> Credential:
        return Credential()

    backend.handler = handler
    first = HttpTransport(config)
    second = first.with_credentials(nothing)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        running = group.create_task(fails(second.send(GET)))
        await asked.wait()
        await first.close()
        assert not running.done()
        await second.close()


async def fails(work: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(TransportError):
        await work


async def test_in_a_pod_the_token_is_read_again_once_it_is_refused(
    backend: Any, authority: Any, tmp_path: Path
) -> None:
    root = tmp_path / "serviceaccount"
    root.mkdir()
    (root / "token").write_text("first\n")
    (root / "ca.crt").write_bytes(authority.pem)
    _, _, port = backend.url.rpartition(":")
    found = in_cluster({"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}, root)
    backend.handler, _ = accepting("first")
    async with transport(found) as sender:
        assert (await sender.send(GET)).status == 200
        (root / "token").write_text("second\n")
        backend.handler, _ = accepting("second")
        assert (await sender.send(GET)).status == 200


async def test_a_header_of_several_lines_is_not_sent(config: ClientConfig) -> None:
    async with transport(config) as sender:
        with pytest.raises(TransportError, match="a header can't have several lines"):
            await sender.send(replace_headers({"accept": "a\r\nx-remote-user: admin"}))


def replace_headers(headers: dict[str, str]) -> Request:
    return Request(GET.method, GET.path, headers=headers)
