"""A server with encrypted storage: key rotation, reloaded files, and unavailable services."""

import asyncio
import json
import re
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.parse import FlagError
from controller_manager.testing.virtual import run
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.storage.encryption.test_kms import Service

ADMIN = Certificate("admin", ("system:masters",))
SECRETS, CONFIGS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/configmaps"
USUAL = ("--storage-backend=memory", "--advertise-address=192.0.2.1")
OLD, NEW = (b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def aesgcm(*names: str) -> dict[str, Any]:
    secrets = {"old": OLD, "new": NEW}
    return {"aesgcm": {"keys": [{"name": name, "secret": secrets[name]} for name in names]}}


def write(file: Path, *rules: tuple[Sequence[str], Sequence[dict[str, Any]]]) -> None:
    resources = [{"resources": list(names), "providers": list(providers)} for names, providers in rules]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    file.write_text(json.dumps({**kind, "resources": resources}))


class Api:
    def __init__(self, server: ApiServer, runtime: Runtime) -> None:
        self.server, self.runtime = server, runtime

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        pairs = tuple(tuple(pair.split("=")) for pair in query.split("&") if pair)
        response = await self.server.handle(Request(method, path, pairs, {}, data, ADMIN))
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body) if response.body[:1] == b"{" else response.body.decode()


@asynccontextmanager
async def started(backend: MemoryBackend, file: Path, *flags: str, work: bool = False) -> AsyncIterator[Api]:
    texts = (
        "--storage-backend=memory",
        "--advertise-address=192.0.2.1",
        f"--encryption-provider-config={file}",
        *flags,
    )
    runtime = Runtime("test")
    server = build(FLAGS.parse(texts), runtime, embedded_storage(backend, encrypts=True))
    await server.start()
    async with Tasks() as tasks:
        if work:
            tasks.start(server.run(), name="work")
        yield Api(server, runtime)
        tasks.cancel()
    server.end_streams()
    await server.stop()


def stored_data(backend: MemoryBackend, resource: str, key: str) -> bytes:
    """The last stored data of a row."""
    return next(r.data for r in reversed(list(backend._records.values())) if (r.resource, r.key) == (resource, key))


async def secret(api: Api, name: str = "s") -> Any:
    code, made = await api("POST", SECRETS, {"metadata": {"name": name}, "stringData": {"a": "hush-hush"}})
    assert code == 201
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "enc.json"


async def test_selected_resources_are_encrypted_and_read_after_restart(file: Path) -> None:
    backend = MemoryBackend()
    write(file, (["secrets", "events", "*.apps"], [aesgcm("old"), {"identity": {}}]))
    async with started(backend, file) as api:
        made = await secret(api)
        await api("POST", CONFIGS, {"metadata": {"name": "c"}, "data": {"a": "hush-hush"}})
        assert stored_data(backend, "secrets", "default/s").startswith(b"k8s:enc:aesgcm:v1:old:")
        assert b"hush-hush" in stored_data(backend, "configmaps", "default/c")
        everything = b"".join(r.data for r in backend._records.values() if r.resource == "secrets")
        assert b64encode(b"hush-hush") not in everything
        assert await api("GET", f"{SECRETS}/s") == (200, made)
        assert (await api("DELETE", f"{SECRETS}/s"))[0] == 200
        assert (await api("GET", f"{SECRETS}/s"))[0] == 404
        made = await secret(api, "t")
    async with started(backend, file) as api:
        assert await api("GET", f"{SECRETS}/t") == (200, made)
        code, listed = await api("GET", f"{SECRETS}?resourceVersion={made['metadata']['resourceVersion']}")
        assert (code, [item["metadata"]["name"] for item in listed["items"]]) == (200, ["t"])
        _, metrics = await api("GET", "/metrics")
        assert 'transformation_operations_total{resource="secrets",status="OK"' in metrics
        assert 'transformer_prefix="k8s:enc:aesgcm:v1:"' in metrics


async def test_unchanged_update_reencrypts_with_new_key(file: Path) -> None:
    backend = MemoryBackend()
    write(file, (["secrets"], [aesgcm("old")]))
    async with started(backend, file) as api:
        await secret(api)
    write(file, (["secrets"], [aesgcm("new", "old")]))
    async with started(backend, file) as api:
        _, before = await api("GET", f"{SECRETS}/s")
        code, after = await api("PUT", f"{SECRETS}/s", before)
        assert code == 200
        assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        assert after["data"] == before["data"]
        assert stored_data(backend, "secrets", "default/s").startswith(b"k8s:enc:aesgcm:v1:new:")
        assert await api("PUT", f"{SECRETS}/s", after) == (200, after)  # nothing is left to do
    write(file, (["secrets"], [{"identity": {}}, aesgcm("new")]))
    async with started(backend, file) as api:
        assert (await api("PUT", f"{SECRETS}/s", after))[1]["data"] == before["data"]
        assert b'"kind":"Secret"' in stored_data(backend, "secrets", "default/s")


async def test_only_objects_of_missing_key_are_unreadable(file: Path) -> None:
    backend = MemoryBackend()
    write(file, (["secrets"], [aesgcm("old")]))
    async with started(backend, file) as api:
        await secret(api)
    write(file, (["secrets"], [aesgcm("new"), {"identity": {}}]))
    async with started(backend, file) as api:
        code, status = await api("GET", f"{SECRETS}/s")
        assert (code, status["reason"]) == (500, "InternalError")
        made = await secret(api, "t")
        assert await api("GET", f"{SECRETS}/t") == (200, made)
        assert (await api("GET", CONFIGS))[0] == 200


def test_changed_file_is_reloaded_and_broken_one_ignored(file: Path) -> None:
    backend = MemoryBackend()
    write(file, (["secrets"], [aesgcm("old")]))
    rules = (lambda: write(file, (["secrets"], [aesgcm("new", "old")])), lambda: file.write_text("kind: Nonsense"))

    async def main() -> str:
        async with started(backend, file, "--encryption-provider-config-automatic-reload", work=True) as api:
            assert (await api("GET", "/readyz/kms-providers"))[0] == 200
            await secret(api, "one")
            for name, change in zip(("two", "three"), rules, strict=True):
                change()
                await asyncio.sleep(61)
                await secret(api, name)
            assert (await api("GET", f"{SECRETS}/one"))[0] == 200
            return str((await api("GET", "/metrics"))[1])

    metrics = run(main())
    names = {name: stored_data(backend, "secrets", f"default/{name}")[:22] for name in ("one", "two", "three")}
    assert names == dict(zip(names, (b"k8s:enc:aesgcm:v1:old:", *[b"k8s:enc:aesgcm:v1:new:"] * 2), strict=True))
    for status in ("success", "failure"):
        family = r"apiserver_encryption_config_controller_automatic_reloads_total"
        assert re.search(rf'{family}{{[^}}]*status="{status}"[^}}]*}} 1\b', metrics)


def test_encrypted_events_expire_like_others(file: Path) -> None:
    write(file, (["events"], [aesgcm("old")]))
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"namespace": "default", "name": "x", "kind": "Pod"},
        "reason": "Why",
        "type": "Normal",
    }
    path = "/api/v1/namespaces/default/events"

    async def main() -> None:
        async with started(MemoryBackend(), file, "--event-ttl=1m") as api:
            assert (await api("POST", path, event))[0] == 201
            await asyncio.sleep(30)
            assert (await api("GET", f"{path}/e"))[0] == 200
            await asyncio.sleep(60)
            assert (await api("GET", f"{path}/e"))[0] == 404

    run(main())


async def test_kms_service_is_used_and_its_health_reported(file: Path) -> None:
    backend, service = MemoryBackend(), Service()
    with tempfile.TemporaryDirectory(prefix="kms") as folder:
        target = f"unix://{folder}/kms.sock"
        kms = {"kms": {"apiVersion": "v2", "name": "plug", "endpoint": target, "timeout": "1s"}}
        write(file, (["secrets"], [kms]))
        async with service.serving(target):
            async with started(backend, file) as api:
                made = await secret(api)
                assert stored_data(backend, "secrets", "default/s").startswith(b"k8s:enc:kms:v2:plug:")
                assert (await api("GET", "/healthz/kms-providers"))[0] == 200
                assert (await api("GET", "/livez/kms-providers"))[0] == 404
            service.asked.clear()
            async with started(backend, file) as api:
                assert await api("GET", f"{SECRETS}/s") == (200, made)
                assert service.asked == ["Status", "Encrypt", "Decrypt"]
        async with started(MemoryBackend(), file) as api:  # no existing object needs the service
            code, status = await api("POST", SECRETS, {"metadata": {"name": "s"}})
            assert (code, status["reason"]) == (500, "InternalError")
            assert "has no key" in status["message"]
            code, text = await api("GET", "/readyz?verbose=")
            assert code == 500
            assert "[-]kms-providers failed" in text
            assert (await api("POST", CONFIGS, {"metadata": {"name": "c"}}))[0] == 201


async def test_late_kms_key_delays_watch_but_loses_nothing(file: Path) -> None:
    """Two servers on one storage, each with its own seed: one learns the other's seed when it reads an object."""
    backend, service = MemoryBackend(), Service()
    storage = embedded_storage(backend, encrypts=True)
    with tempfile.TemporaryDirectory(prefix="kms") as folder:
        target = f"unix://{folder}/kms.sock"
        write(file, (["secrets"], [{"kms": {"apiVersion": "v2", "name": "plug", "endpoint": target}}]))
        texts = (*USUAL, f"--encryption-provider-config={file}")
        async with service.serving(target):
            servers = [build(FLAGS.parse(texts), Runtime("test"), storage) for _ in range(2)]
            for server in servers:
                await server.start()
            one, other = (Api(server, Runtime("test")) for server in servers)
            for number in range(20):
                await secret(one, f"s{number}")
                await one("POST", CONFIGS, {"metadata": {"name": f"c{number}"}})
            code, listed = await other("GET", SECRETS)
            assert (code, len(listed["items"])) == (200, 20)
            assert service.asked.count("Decrypt") <= 3
            for server in servers:
                server.end_streams()
                await server.stop()


def test_reload_needs_a_file() -> None:
    with pytest.raises(FlagError, match="--encryption-provider-config-automatic-reload needs"):
        FLAGS.parse(["--encryption-provider-config-automatic-reload"])


async def test_encrypted_object_without_configuration_is_reported(file: Path) -> None:
    backend = MemoryBackend()
    write(file, (["secrets"], [aesgcm("old")]))
    async with started(backend, file) as api:
        await secret(api)
    server = build(FLAGS.parse(USUAL), Runtime("test"), embedded_storage(backend))
    await server.start()
    code, status = await Api(server, Runtime("test"))("GET", f"{SECRETS}/s")
    await server.stop()
    assert code == 500
    assert "it is encrypted, and no provider is configured" in status["message"]
