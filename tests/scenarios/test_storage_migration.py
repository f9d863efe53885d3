"""Storage version migrations in a whole cluster, in virtual time: each object is rewritten, and nothing else."""

import json
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.apiextensions import DEFINITIONS
from controller_manager.common.api.core import CONFIG_MAPS, ConfigMap
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.model import ObjectMeta, PartialObject
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.storage_migration import (
    MIGRATIONS,
    GroupResource,
    StorageVersionMigration,
    StorageVersionMigrationSpec,
)
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers import storage_version_migrator
from controllers.storage_version_migrator import SPECS

pytestmark = pytest.mark.virtual
SERVED = ("--feature-gates=StorageVersionMigrator=true", "--runtime-config=api/beta=true")
ON = ("--leader-elect=false", "--feature-gates=StorageVersionMigrator=true")
NAME, GROUP = "foos.example.org", "example.org"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOOS = Resource(GROUP, "v1", "foos", "Foo", True, PartialObject)


def definition(storage: str, **more: Any) -> Any:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == storage, "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions, **more},
    }


async def ask(cluster: Cluster, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
    from controller_manager.framework.client.rest_client import Call

    data = b"" if body is None else json.dumps(body).encode()
    return json.loads(await cluster.client.raw(Call(method, path, body=data, content_type=kind)))


async def begin(cluster: Cluster, name: str, group: str, plural: str) -> None:
    spec = StorageVersionMigrationSpec(resource=GroupResource(group=group, resource=plural))
    await cluster.client.create(MIGRATIONS, StorageVersionMigration(metadata=ObjectMeta(name=name), spec=spec))


async def outcome(cluster: Cluster, name: str) -> dict[str, tuple[str, str]]:
    found = await cluster.client.get(MIGRATIONS, Key("", name))
    return {one.type: (one.status, one.reason) for one in found.status.conditions}


SUCCEEDED = {
    "Running": ("False", "MigrationCompleted"),
    "Succeeded": ("True", "StorageVersionMigrationSucceeded"),
}
FAILED = {
    "Running": ("False", "MigrationCompleted"),
    "Failed": ("True", "StorageVersionMigrationFailed"),
}


class Written:
    """Records the written objects of a resource in their stored form."""

    def __init__(self, cluster: Cluster, resource: str) -> None:
        self.rows: list[bytes] = []
        self._resource = resource
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        self.rows += [change.row.data for change in changes if change.row.resource == self._resource]


async def make_foos(cluster: Cluster, count: int) -> None:
    await ask(cluster, "POST", CRD, definition("v1"))
    await cluster.sleep(1)
    for number in range(count):
        foo = {"apiVersion": f"{GROUP}/v1", "kind": "Foo", "metadata": {"name": f"f-{number}"}, "spec": {"a": number}}
        await ask(cluster, "POST", f"/apis/{GROUP}/v1/namespaces/default/foos", foo)


async def store_as(cluster: Cluster, version: str) -> None:
    patch = {"spec": {"versions": definition(version)["spec"]["versions"]}}
    await ask(cluster, "PATCH", f"{CRD}/{NAME}", patch, "application/merge-patch+json")
    await cluster.sleep(1)


def versions_of(cluster: Cluster) -> set[str]:
    return {row.field("apiVersion") for row in cluster.api.store.snapshot(NAME).items()}


async def test_custom_objects_are_rewritten_in_storage_version() -> None:
    async with Cluster(SERVED) as cluster:
        await make_foos(cluster, 3)
        await store_as(cluster, "v2")
        assert versions_of(cluster) == {f"{GROUP}/v1"}
        await cluster.manage(*ON, specs=SPECS)
        await begin(cluster, "m", GROUP, "foos")
        await cluster.settle()
        assert versions_of(cluster) == {f"{GROUP}/v2"}
        assert await outcome(cluster, "m") == SUCCEEDED
        found = await cluster.client.get(DEFINITIONS, Key("", NAME))
        assert found.status.stored_versions == ("v2",)
        conditions = {one.type: one.status for one in found.status.conditions}
        assert conditions["StorageMigrating"] == "False"
        page = await cluster.client.list(FOOS)
        assert all(not one.metadata.owner_references for one in page.items)


async def test_definition_changed_in_migration_keeps_stored_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_version_migrator, "PAGE", 1)
    async with Cluster(SERVED) as cluster:
        await make_foos(cluster, 3)
        await store_as(cluster, "v2")
        changed = False

        def change(changes: Sequence[Change]) -> None:
            nonlocal changed
            if not changed and any(one.row.resource == NAME for one in changes):
                changed = True
                tasks.append(store_as(cluster, "v1"))

        tasks: list[Any] = []
        cluster.api.store.subscribe(change)
        replica = await cluster.manage(*ON, specs=SPECS)
        await begin(cluster, "m", GROUP, "foos")
        await cluster.settle()
        assert changed
        await tasks[0]
        await replica.stop()
        found = await cluster.client.get(DEFINITIONS, Key("", NAME))
        assert "v1" in found.status.stored_versions


async def test_up_to_date_objects_are_not_rewritten() -> None:
    async with Cluster(SERVED) as cluster:
        for name in ("a", "b"):
            await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=ObjectMeta(namespace="default", name=name)))
        written = Written(cluster, "configmaps")
        await cluster.manage(*ON, specs=SPECS)
        await begin(cluster, "m", "", "configmaps")
        await cluster.settle()
        assert await outcome(cluster, "m") == SUCCEEDED
        assert written.rows == []


async def test_secrets_are_reencrypted_with_current_key(tmp_path: Path) -> None:
    file = tmp_path / "encryption.yaml"

    def write(*keys: str) -> None:
        listed = [{"name": key, "secret": b64encode(key.encode().ljust(32, b"x")).decode()} for key in keys]
        providers = [{"aescbc": {"keys": listed}}, {"identity": {}}]
        kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
        file.write_text(json.dumps({**kind, "resources": [{"resources": ["secrets"], "providers": providers}]}))

    def stored(cluster: Cluster) -> list[bytes]:
        records = cluster.rows.at(cluster.rows.revision, "secrets")
        return [bytes(record.data)[:40] for record in records]

    write("old")
    async with Cluster((*SERVED, f"--encryption-provider-config={file}")) as cluster:
        for name in ("a", "b"):
            secret = {"kind": "Secret", "metadata": {"name": name}, "stringData": {"k": "v"}}
            await ask(cluster, "POST", "/api/v1/namespaces/default/secrets", secret)
        before = await ask(cluster, "GET", "/api/v1/namespaces/default/secrets/a")
        await cluster.stop_api()
        write("new", "old")
        await cluster.start_api()
        assert all(b"aescbc:v1:old:" in data for data in stored(cluster))
        await cluster.manage(*ON, specs=SPECS)
        await begin(cluster, "m", "", "secrets")
        await cluster.settle()
        assert await outcome(cluster, "m") == SUCCEEDED
        assert all(b"aescbc:v1:new:" in data for data in stored(cluster)[-2:])
        after = await ask(cluster, "GET", "/api/v1/namespaces/default/secrets/a")
        before["metadata"].pop("resourceVersion"), after["metadata"].pop("resourceVersion")
        assert after == before
        await cluster.stop_api()
        write("new")
        await cluster.start_api()
        assert (await ask(cluster, "GET", "/api/v1/namespaces/default/secrets/b"))["data"] == {"k": "dg=="}


@pytest.mark.parametrize(
    ("group", "plural", "waits"),
    [("", "nothings", True), ("authorization.k8s.io", "subjectaccessreviews", False), ("", "bindings", False)],
)
async def test_migration_of_unknown_resource_fails(group: str, plural: str, waits: bool) -> None:
    async with Cluster(SERVED) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await begin(cluster, "m", group, plural)
        await cluster.sleep(30)
        assert ("Failed" in await outcome(cluster, "m")) is not waits
        await cluster.sleep(60)
        assert await outcome(cluster, "m") == FAILED


async def test_migration_waits_for_resource_defined_later() -> None:
    async with Cluster(SERVED) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await begin(cluster, "m", GROUP, "foos")
        await cluster.sleep(20)
        await make_foos(cluster, 1)
        await cluster.sleep(20)
        assert await outcome(cluster, "m") == SUCCEEDED


async def test_migrations_of_one_resource_run_in_sequence() -> None:
    async with Cluster(SERVED) as cluster:
        running: list[set[str]] = []

        def look(_: Sequence[Change]) -> None:
            rows = cluster.api.store.snapshot("storageversionmigrations.storagemigration.k8s.io").items()
            found = [StorageVersionMigration.decode(row.data) for row in rows]
            running.append({one.metadata.name for one in found if one.is_running})

        cluster.api.store.subscribe(look)
        for name in ("c", "a", "b"):
            await begin(cluster, name, "", "configmaps")
            await cluster.sleep(2)
        await begin(cluster, "other", "", "secrets")
        await cluster.manage(*ON, specs=SPECS)
        await cluster.settle()
        for name in ("a", "b", "c", "other"):
            assert await outcome(cluster, name) == SUCCEEDED
        assert all(len(names - {"other"}) <= 1 for names in running)
        began = list(dict.fromkeys(name for names in running for name in sorted(names - {"other"})))
        assert began == ["c", "a", "b"]


@pytest.mark.virtual(seeds=200)
async def test_every_object_is_migrated_despite_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are changed, deleted and created under faults; finally all are stored in the current version, with every
    change of users.
    """
    monkeypatch.setattr(storage_version_migrator, "PAGE", 3)
    async with Cluster(SERVED) as cluster:
        await make_foos(cluster, 10)
        await store_as(cluster, "v2")
        expected = {f"f-{number}": number for number in range(10)}
        faults = FaultInjector(
            cluster, await cluster.manage(*ON, "--controllers=svm", faults=RATE), (*ON, "--controllers=svm"), ("/apis",)
        )
        await begin(cluster, "m", GROUP, "foos")
        path = f"/apis/{GROUP}/v1/namespaces/default/foos"
        for round_ in range(20):
            name = f"f-{int(random_source().uniform(0, 12))}"
            act = int(random_source().uniform(0, 6))
            if act == 0 and expected.pop(name, None) is not None:
                await ask(cluster, "DELETE", f"{path}/{name}")
            elif act == 1 and name in expected:
                expected[name] = 100 + round_
                change = {"spec": {"a": 100 + round_}}
                await ask(cluster, "PATCH", f"{path}/{name}", change, "application/merge-patch+json")
            elif act == 2 and name not in expected:
                expected[name] = 200 + round_
                foo = {"apiVersion": f"{GROUP}/v1", "kind": "Foo", "metadata": {"name": name}}
                await ask(cluster, "POST", path, {**foo, "spec": {"a": 200 + round_}})
            elif act == 3:
                await faults.kill()
            await cluster.sleep(random_source().uniform(0, 2))
        await faults.heal()
        await cluster.sleep(1500)
        await cluster.settle()
        assert await outcome(cluster, "m") == SUCCEEDED
        assert versions_of(cluster) == {f"{GROUP}/v2"}
        items = (await ask(cluster, "GET", path))["items"]
        assert {item["metadata"]["name"]: item["spec"]["a"] for item in items} == expected


async def test_deleted_migration_ends() -> None:
    async with Cluster(SERVED) as cluster:
        await cluster.manage(*ON, specs=SPECS)
        await begin(cluster, "m", GROUP, "foos")
        await cluster.sleep(10)
        await cluster.client.delete(MIGRATIONS, Key("", "m"))
        await cluster.advance(100)
        with pytest.raises(NotFound):
            await cluster.client.get(MIGRATIONS, Key("", "m"))
