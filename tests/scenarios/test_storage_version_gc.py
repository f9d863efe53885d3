"""Garbage collection of storage versions and old pod certificate requests, in virtual time."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.apiserver_internal import STORAGE_VERSIONS, ServerStorageVersion, StorageVersion
from controller_manager.common.api.certificates import POD_REQUESTS
from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.base.clock import monotonic
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controllers.storage_version_gc import servers_of
from tests.scenarios.faults import assert_no_writes, break_watches, heal_and_settle, random_choice, run_random_actions

pytestmark = pytest.mark.virtual
SERVED = ("--feature-gates=StorageVersionAPI=true", "--runtime-config=api/alpha=true")
GATES = "--feature-gates=StorageVersionAPI=true"
ON = ("--leader-elect=false", GATES, "--controllers=storageversion-garbage-collector-controller")
PATH = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
READ = (LEASES.path("kube-system"), PATH)
# Seconds between the read without the lease and the update, which may be delayed or repeated.
LATENESS = 20.0


async def write_version(cluster: Cluster, name: str, **encodings: str) -> None:
    """Write the storage version `name` with the encoding version of each server."""
    found = set(encodings.values())
    common = {"commonEncodingVersion": found.pop()} if len(found) == 1 else {}
    servers = [
        {"apiServerID": server, "encodingVersion": version, "decodableVersions": [version]}
        for server, version in encodings.items()
    ]
    body = {"metadata": {"name": name}, "spec": {}}
    await cluster.client.raw(Call("POST", PATH, body=json.dumps(body).encode()))
    status = json.dumps({"status": {"storageVersions": servers, **common}}).encode()
    await cluster.client.raw(
        Call("PATCH", f"{PATH}/{name}/status", body=status, content_type="application/merge-patch+json")
    )


async def join(cluster: Cluster, name: str, **labels: str) -> None:
    identity = {"apiserver.kubernetes.io/identity": "kube-apiserver"} | labels
    await cluster.client.create(LEASES, Lease(metadata=ObjectMeta(namespace="kube-system", name=name, labels=identity)))


async def encoders(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    found = (await cluster.client.list(STORAGE_VERSIONS)).items
    return {one.metadata.name: tuple(s.api_server_id for s in one.status.storage_versions) for one in found}


async def test_servers_without_lease_are_removed() -> None:
    async with Cluster(SERVED) as cluster:
        await join(cluster, "a")
        await write_version(cluster, "g.both", a="v1", b="v2")
        await write_version(cluster, "g.gone", b="v1")
        await write_version(cluster, "g.there", a="v1")
        await cluster.manage(*ON)
        await cluster.settle()
        assert await encoders(cluster) == {"g.both": ("a",), "g.there": ("a",)}
        assert (await cluster.client.get(STORAGE_VERSIONS, Key("", "g.both"))).status.common_encoding_version == "v1"


async def test_server_is_removed_with_its_lease() -> None:
    async with Cluster(SERVED) as cluster:
        for name in ("a", "b"):
            await join(cluster, name)
        await write_version(cluster, "g.both", a="v1", b="v1")
        await write_version(cluster, "g.mine", b="v1")
        await cluster.manage(*ON)
        await cluster.settle()
        assert await encoders(cluster) == {"g.both": ("a", "b"), "g.mine": ("b",)}
        await cluster.client.delete(LEASES, Key("kube-system", "b"))
        await cluster.settle()
        assert await encoders(cluster) == {"g.both": ("a",)}


async def test_server_is_removed_when_watch_missed_its_lease() -> None:
    async with Cluster(SERVED) as cluster:
        await join(cluster, "a")
        replica = await cluster.manage(*ON)
        await cluster.settle()
        replica.network.intercept(break_watches(LEASES.path()))
        replica.network.cut()
        replica.network.heal()
        await join(cluster, "b")
        await write_version(cluster, "g.both", a="v1", b="v1")
        await cluster.sleep(10)
        await cluster.client.delete(LEASES, Key("kube-system", "b"))
        await cluster.sleep(10)
        assert await encoders(cluster) == {"g.both": ("a", "b")}
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await encoders(cluster) == {"g.both": ("a",)}


async def test_lease_with_other_identity_label_is_ignored() -> None:
    async with Cluster(SERVED) as cluster:
        await join(cluster, "a", **{"apiserver.kubernetes.io/identity": "other"})
        await cluster.manage(*ON)
        await write_version(cluster, "g.foos", a="v1")
        await cluster.settle()
        assert await encoders(cluster) == {}


async def test_versions_of_running_server_stay() -> None:
    async with Cluster(("--feature-gates=StorageVersionAPI=true,APIServerIdentity=true", SERVED[1])) as cluster:
        before = await encoders(cluster)
        await cluster.manage(*ON)
        await write_version(cluster, "storageversion.e2e.test.foos", unknown="v1")
        await cluster.advance(60)
        assert len(before) > 50
        assert await encoders(cluster) == before


class Servers:
    """API servers that start and stop, and a checker of removed storage versions."""

    def __init__(self, cluster: Cluster) -> None:
        self.there: dict[str, float] = {}
        """Since when each server has its lease."""
        self.violations: list[str] = []
        self._cluster = cluster
        self._told: dict[str, set[str]] = {}
        cluster.api.store.subscribe(self._watch)

    def _watch(self, changes: Sequence[Change]) -> None:
        for change in changes:
            name = change.row.name
            if change.row.resource == LEASES.name and change.deleted:
                self.there.pop(name, None)
            elif change.row.resource == LEASES.name:
                self.there.setdefault(name, monotonic())
            elif change.row.resource == STORAGE_VERSIONS.name:
                encoders = set() if change.deleted else set(servers_of(StorageVersion.decode(change.row.data)))
                self._check(name, self._told.get(name, set()) - encoders)
                self._told[name] = encoders

    def _check(self, name: str, removed: set[str]) -> None:
        for server in removed & self.there.keys():
            if monotonic() - self.there[server] > LATENESS:
                self.violations.append(f"{name} lost {server}, which is running")

    async def come_or_go(self) -> None:
        """Start a server with its lease and storage version, or delete its lease."""
        name = f"s{random_choice(range(4))}"
        if name in self.there:
            await self._cluster.client.delete(LEASES, Key("kube-system", name))
            return
        await join(self._cluster, name)
        version = f"g.r{random_choice(range(2))}"
        found = await self._cluster.client.get(STORAGE_VERSIONS, Key("", version))
        if name not in servers_of(found):
            entry = ServerStorageVersion(api_server_id=name, encoding_version="v1", decodable_versions=("v1",))
            status = replace(found.status, storage_versions=(*found.status.storage_versions, entry))
            await self._cluster.client.update(STORAGE_VERSIONS, replace(found, status=status), subresource="status")


@pytest.mark.virtual(seeds=200)
async def test_only_servers_with_leases_remain_after_faults() -> None:
    """No running server is ever removed, and finally only running servers remain."""
    async with Cluster(SERVED) as cluster:
        servers = Servers(cluster)
        await join(cluster, "stays")
        for number in range(2):
            await write_version(cluster, f"g.r{number}", stays="v1", **{f"s{number}": "v1"})
        faults = FaultInjector(cluster, await cluster.manage(*ON, faults=RATE), ON, READ)
        act = servers.come_or_go
        await run_random_actions(cluster, (act, act, act, faults.unheard(act), faults.kill, faults.cut), 16)
        await heal_and_settle(cluster, faults)
        assert servers.violations == []
        found = await encoders(cluster)
        assert set(found) == {"g.r0", "g.r1"}
        assert {server for names in found.values() for server in names} <= servers.there.keys()
        await assert_no_writes(cluster)


PODS = ("--feature-gates=PodCertificateRequest=true", "--runtime-config=api/beta=true")


async def test_pod_certificate_requests_are_deleted_after_15_minutes() -> None:
    from base64 import b64encode

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding

    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    request = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, None).public_bytes(Encoding.DER)
    names = {"signerName": "example.com/x", "podName": "p", "serviceAccountName": "sa", "nodeName": "n"}
    spec: Any = {**names, **dict.fromkeys(("podUID", "serviceAccountUID", "nodeUID"), "uid")}
    spec["stubPKCS10Request"] = b64encode(request).decode()
    async with Cluster(PODS) as cluster:
        await cluster.manage("--leader-elect=false", PODS[0], "--controllers=podcertificaterequest-cleaner-controller")
        body = json.dumps({"metadata": {"name": "r"}, "spec": spec}).encode()
        path = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests"
        await cluster.client.raw(Call("POST", path, body=body))
        await cluster.advance(890)
        assert (await cluster.client.get(POD_REQUESTS, Key("default", "r"))).metadata.name == "r"
        await cluster.advance(15)
        with pytest.raises(NotFound):
            await cluster.client.get(POD_REQUESTS, Key("default", "r"))
