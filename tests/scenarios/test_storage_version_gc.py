"""Storage versions of API servers that are gone, and old requests for certificates of pods, in virtual time."""

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
from tests.scenarios.trials import calm, go_on, is_quiet, one_of, unheard

pytestmark = pytest.mark.virtual
SERVED = ("--feature-gates=StorageVersionAPI=true", "--runtime-config=api/alpha=true")
GATES = "--feature-gates=StorageVersionAPI=true"
ON = ("--leader-elect=false", GATES, "--controllers=storageversion-garbage-collector-controller")
PATH = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
READ = (LEASES.path("kube-system"), PATH)
# From the answer of the server that there is no lease to the update, which may be delayed or repeated.
LATENESS = 20.0


async def tell(cluster: Cluster, name: str, **encodings: str) -> None:
    """Tell of the resource `name` what servers encode it in."""
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


async def told(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    found = (await cluster.client.list(STORAGE_VERSIONS)).items
    return {one.metadata.name: tuple(s.api_server_id for s in one.status.storage_versions) for one in found}


async def test_servers_without_a_lease_are_forgotten() -> None:
    async with Cluster(SERVED) as cluster:
        await join(cluster, "a")
        await tell(cluster, "g.both", a="v1", b="v2")
        await tell(cluster, "g.gone", b="v1")
        await tell(cluster, "g.there", a="v1")
        await cluster.manage(*ON)
        await cluster.settle()
        assert await told(cluster) == {"g.both": ("a",), "g.there": ("a",)}
        assert (await cluster.client.get(STORAGE_VERSIONS, Key("", "g.both"))).status.common_encoding_version == "v1"


async def test_a_server_that_goes_is_forgotten_with_its_lease() -> None:
    async with Cluster(SERVED) as cluster:
        for name in ("a", "b"):
            await join(cluster, name)
        await tell(cluster, "g.both", a="v1", b="v1")
        await tell(cluster, "g.mine", b="v1")
        await cluster.manage(*ON)
        await cluster.settle()
        assert await told(cluster) == {"g.both": ("a", "b"), "g.mine": ("b",)}
        await cluster.client.delete(LEASES, Key("kube-system", "b"))
        await cluster.settle()
        assert await told(cluster) == {"g.both": ("a",)}


async def test_a_server_that_came_back_and_went_unheard_is_forgotten() -> None:
    async with Cluster(SERVED) as cluster:
        await join(cluster, "a")
        replica = await cluster.manage(*ON)
        await cluster.settle()
        replica.network.intercept(unheard(LEASES.path()))
        replica.network.cut()
        replica.network.heal()
        await join(cluster, "b")
        await tell(cluster, "g.both", a="v1", b="v1")
        await cluster.sleep(10)
        await cluster.client.delete(LEASES, Key("kube-system", "b"))
        await cluster.sleep(10)
        assert await told(cluster) == {"g.both": ("a", "b")}
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await told(cluster) == {"g.both": ("a",)}


async def test_a_lease_of_something_else_is_none_of_a_server() -> None:
    async with Cluster(SERVED) as cluster:
        await join(cluster, "a", **{"apiserver.kubernetes.io/identity": "other"})
        await cluster.manage(*ON)
        await tell(cluster, "g.foos", a="v1")
        await cluster.settle()
        assert await told(cluster) == {}


async def test_what_the_server_itself_tells_stays() -> None:
    async with Cluster(("--feature-gates=StorageVersionAPI=true,APIServerIdentity=true", SERVED[1])) as cluster:
        before = await told(cluster)
        await cluster.manage(*ON)
        await tell(cluster, "storageversion.e2e.test.foos", nobody="v1")
        await cluster.advance(60)
        assert len(before) > 50
        assert await told(cluster) == before


class Servers:
    """Servers that come and go, and who was forgotten by whom that should not have been."""

    def __init__(self, cluster: Cluster) -> None:
        self.there: dict[str, float] = {}
        """Since when each server has its lease."""
        self.wrong: list[str] = []
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
                told = set() if change.deleted else set(servers_of(StorageVersion.decode(change.row.data)))
                self._judge(name, self._told.get(name, set()) - told)
                self._told[name] = told

    def _judge(self, name: str, forgotten: set[str]) -> None:
        for server in forgotten & self.there.keys():
            if monotonic() - self.there[server] > LATENESS:
                self.wrong.append(f"{name} forgets {server}, which is there")

    async def come_or_go(self) -> None:
        """A server gets its lease and tells of a resource, or loses its lease."""
        name = f"s{one_of(range(4))}"
        if name in self.there:
            await self._cluster.client.delete(LEASES, Key("kube-system", name))
            return
        await join(self._cluster, name)
        version = f"g.r{one_of(range(2))}"
        found = await self._cluster.client.get(STORAGE_VERSIONS, Key("", version))
        if name not in servers_of(found):
            entry = ServerStorageVersion(api_server_id=name, encoding_version="v1", decodable_versions=("v1",))
            status = replace(found.status, storage_versions=(*found.status.storage_versions, entry))
            await self._cluster.client.update(STORAGE_VERSIONS, replace(found, status=status), subresource="status")


@pytest.mark.virtual(seeds=200)
async def test_only_servers_with_leases_are_told_of_in_the_end() -> None:
    """No server that is there is ever forgotten, and in the end none is told of that is not."""
    async with Cluster(SERVED) as cluster:
        servers = Servers(cluster)
        await join(cluster, "stays")
        for number in range(2):
            await tell(cluster, f"g.r{number}", stays="v1", **{f"s{number}": "v1"})
        faults = FaultInjector(cluster, await cluster.manage(*ON, faults=RATE), ON, READ)
        act = servers.come_or_go
        await go_on(cluster, (act, act, act, faults.unheard(act), faults.kill, faults.cut), 16)
        await calm(cluster, faults)
        assert servers.wrong == []
        found = await told(cluster)
        assert set(found) == {"g.r0", "g.r1"}
        assert {server for names in found.values() for server in names} <= servers.there.keys()
        await is_quiet(cluster)


PODS = ("--feature-gates=PodCertificateRequest=true", "--runtime-config=api/beta=true")


async def test_requests_of_pods_go_after_a_quarter_of_an_hour() -> None:
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
