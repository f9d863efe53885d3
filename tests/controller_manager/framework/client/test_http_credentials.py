"""Credentials over HTTP: use, renewal, refusal, and separation between clients."""

import asyncio
import stat
import sys
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller_manager.common.api.wire import Request
from controller_manager.common.transport.config import ClientConfig, ClientIdentity, ExecPlugin, Impersonation
from controller_manager.common.transport.http_transport import HttpTransport
from controller_manager.common.transport.kubeconfig import in_cluster
from controller_manager.common.transport.transport import Credential
from controller_manager.framework import TransportError
from tests.controller_manager.framework.client.conftest import Authority
from tests.controller_manager.framework.client.transports import GET, transport


async def test_client_certificate_is_sent_and_reloaded(
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
    identity = ClientIdentity(certificate_file=str(files[0]), key_file=str(files[1]))
    async with transport(replace(config, identity=identity)) as sender:
        assert (await sender.send(GET)).body == b"first"
        write("second")
        assert (await sender.send(GET)).body == b"second"
    certificate, key = authority.issue("third")
    async with transport(replace(config, identity=ClientIdentity(certificate=certificate, key=key))) as sender:
        assert (await sender.send(GET)).body == b"third"


async def test_half_renewed_pair_is_not_used(
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
    identity = ClientIdentity(certificate_file=str(certificate), key_file=str(key))
    async with transport(replace(config, identity=identity)) as sender:
        await sender.send(GET)
        certificate.write_bytes(second[0])
        assert b"first" in (await sender.send(GET)).body
        key.write_bytes(second[1])
        assert b"second" in (await sender.send(GET)).body


def accepting(*tokens: str) -> Any:
    """Return a handler that accepts some tokens, and its list of requests."""
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(status=200 if seen[-1] in {f"Bearer {token}" for token in tokens} else 401)

    return handler, seen


async def test_rotated_token_is_reread_after_401(backend: Any, config: ClientConfig, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    async with transport(replace(config, identity=ClientIdentity(token_file=str(token)))) as sender:
        backend.handler, _ = accepting("old")
        assert (await sender.send(GET)).status == 200
        backend.handler, seen = accepting("new")
        assert (await sender.send(GET)).status == 401
        assert seen == ["Bearer old"]
        token.write_text("new\n")
        assert (await sender.send(GET)).status == 200
        assert seen == ["Bearer old", "Bearer old", "Bearer new"]


async def test_missing_token_file_raises_transport_error(config: ClientConfig) -> None:
    async with transport(replace(config, identity=ClientIdentity(token_file="/nowhere/token"))) as sender:
        with pytest.raises(TransportError, match="tokenFile /nowhere/token can't be read"):
            await sender.send(GET)


async def test_exec_plugin_runs_once_and_again_after_401(backend: Any, config: ClientConfig, tmp_path: Path) -> None:
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
    async with transport(replace(config, identity=ClientIdentity(plugin=plugin))) as sender:
        backend.handler, seen = accepting("t-1")
        answers = await asyncio.gather(*(sender.send(GET) for _ in range(5)))
        assert {answer.status for answer in answers} == {200}
        assert set(seen) == {"Bearer t-1"}
        backend.handler, _ = accepting("t-2")
        assert (await sender.send(GET)).status == 200
    assert runs.stat().st_size == 2


async def test_failing_plugin_is_named_without_its_output(config: ClientConfig, tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    script.write_text("#!/bin/sh\necho secret\nexit 3\n")
    script.chmod(0o700)
    for plugin, problem in (
        (ExecPlugin(str(script)), "failed with exit status 3"),
        (ExecPlugin(str(tmp_path / "missing"), install_hint="get it"), "No such file.*get it"),
        (ExecPlugin("/bin/echo", args=("secret",)), "printed no ExecCredential: it is not JSON"),
    ):
        async with transport(replace(config, identity=ClientIdentity(plugin=plugin))) as sender:
            with pytest.raises(TransportError, match=problem) as caught:
                await sender.send(GET)
        assert "secret" not in str(caught.value)


def test_repr_of_config_hides_secrets() -> None:
    plugin = ExecPlugin("p", env=(("A", "secret"),))
    identity = ClientIdentity(token="secret", certificate=b"secret", key=b"secret", plugin=plugin)
    assert "secret" not in repr(ClientConfig(server="https://x", identity=identity, proxy_url="http://u:secret@p"))


async def test_derived_transports_share_connections_not_credentials(
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
    process = ClientIdentity(certificate=certificate, key=key, token="process")
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
    assert [request[1:] for request in seen[:3]] == [
        ("Bearer process", True),
        ("Bearer one", False),
        ("Bearer two", False),
    ]


async def test_connections_close_with_the_last_transport(backend: Any, config: ClientConfig) -> None:
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


async def test_in_pod_token_is_reread_after_refusal(backend: Any, authority: Any, tmp_path: Path) -> None:
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


ACTING = ClientIdentity(token="t", impersonation=Impersonation("jane", "7", ("a,b", "c"), (("k", ("1", "2")),)))
IMPERSONATION = [
    ("Impersonate-User", "jane"),
    ("Impersonate-Uid", "7"),
    ("Impersonate-Group", "a,b"),
    ("Impersonate-Group", "c"),
    ("Impersonate-Extra-K", "1"),
    ("Impersonate-Extra-K", "2"),
]


def impersonation_of(request: web.BaseRequest) -> list[tuple[str, str]]:
    return [(name.title(), value) for name, value in request.headers.items() if name.lower().startswith("impersonate")]


@pytest.mark.parametrize(
    "request_sent",
    [GET, Request("GET", "/api/v1/pods", (("watch", "1"),)), Request("GET", "/exec", headers={"upgrade": "echo/1"})],
    ids=["request", "watch", "upgrade"],
)
async def test_request_with_impersonation_sends_every_header_line(
    backend: Any, config: ClientConfig, request_sent: Request
) -> None:
    seen: list[list[tuple[str, str]]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(impersonation_of(request))
        return web.Response(status=404)

    backend.handler = handler
    async with transport(replace(config, identity=ACTING)) as sender:
        send = sender.upgrade if "upgrade" in request_sent.headers else sender.send
        await send(request_sent)
    assert seen == [IMPERSONATION]


async def test_other_account_is_sent_without_impersonation(backend: Any, config: ClientConfig) -> None:
    """Controllers with their own service account act as this account, like in kube-controller-manager."""
    seen: list[tuple[str | None, list[tuple[str, str]]]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((request.headers.get("Authorization"), impersonation_of(request)))
        return web.Response()

    async def account(_: float) -> Credential:
        return Credential(token="account")

    backend.handler = handler
    async with transport(replace(config, identity=ACTING)) as sender:
        own = sender.with_credentials(account)
        await own.send(GET)
        await own.close()
    assert seen == [("Bearer account", [])]


async def test_plugin_credentials_are_sent_with_impersonation(
    backend: Any, config: ClientConfig, tmp_path: Path
) -> None:
    script = tmp_path / "plugin"
    script.write_text(
        '#!/bin/sh\necho \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "t"}}\'\n'
    )
    script.chmod(0o700)
    seen: list[list[tuple[str, str]]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(impersonation_of(request))
        return web.Response()

    backend.handler = handler
    acting = ClientIdentity(plugin=ExecPlugin(str(script)), impersonation=ACTING.impersonation)
    async with transport(replace(config, identity=acting)) as sender:
        await sender.send(GET)
    assert seen == [IMPERSONATION]


async def test_explicit_user_of_request_is_kept(backend: Any, config: ClientConfig) -> None:
    seen: list[list[tuple[str, str]]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(impersonation_of(request))
        return web.Response()

    backend.handler = handler
    async with transport(replace(config, identity=ACTING)) as sender:
        await sender.send(Request("GET", "/", headers={"impersonate-user": "john"}))
    assert seen == [[("Impersonate-User", "john")]]


@pytest.mark.parametrize("kind", [GET, Request("GET", "/api/v1/pods", (("watch", "1"),))], ids=["request", "watch"])
async def test_replaced_authority_verifies_the_next_request(
    backend: Any, authority: Any, tmp_path: Path, kind: Request
) -> None:
    file = tmp_path / "authority.crt"
    file.write_bytes(Authority().pem)
    async with transport(ClientConfig(backend.url, file.read_bytes(), ca_file=str(file))) as sender:
        with pytest.raises(TransportError, match="CERTIFICATE_VERIFY_FAILED"):
            await sender.send(kind)
        file.write_bytes(authority.pem)
        assert (await sender.send(kind)).status == 404
        assert sender.authorities == authority.pem


async def test_in_pod_authority_is_reread(backend: Any, authority: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(Authority().pem)
    _, _, port = backend.url.rpartition(":")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    async with transport(in_cluster(environ, tmp_path)) as sender:
        with pytest.raises(TransportError):
            await sender.send(GET)
        (tmp_path / "ca.crt").write_bytes(authority.pem)
        assert (await sender.send(GET)).status == 404
