"""Storage versions of API servers that are gone, and old requests for certificates of pods, in virtual time."""

import json
from typing import Any

import pytest

from controller_manager.api.apiserver_internal import STORAGE_VERSIONS
from controller_manager.api.certificates import POD_REQUESTS
from controller_manager.api.coordination import LEASES, Lease
from controller_manager.api.errors import NotFound
from controller_manager.api.model import ObjectMeta
from controller_manager.api.resource import Key
from controller_manager.base.random import random_source
from controller_manager.client.client import Call
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector

pytestmark = pytest.mark.virtual
SERVED = ("--feature-gates=StorageVersionAPI=true", "--runtime-config=api/alpha=true")
GATES = "--feature-gates=StorageVersionAPI=true"
ON = ("--leader-elect=false", GATES, "--controllers=storageversion-garbage-collector-controller")
PATH = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"


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


@pytest.mark.virtual(seeds=200)
async def test_only_servers_with_leases_are_told_of_in_the_end() -> None:
    """No storage version of a server that is there is ever deleted, and in the end none tells of one that is not."""
    async with Cluster(SERVED) as cluster:
        await join(cluster, "stays")
        for number in range(4):
            await tell(cluster, f"g.r{number}", stays="v1", **{f"s{number}": "v1"})
        faults = FaultInjector(cluster, await cluster.manage(*ON, faults=RATE), ON, ("/apis",))
        there = {"stays"}
        for _ in range(12):
            name = f"s{int(random_source().uniform(0, 4))}"
            if name in there:
                there.remove(name)
                await cluster.client.delete(LEASES, Key("kube-system", name))
            elif random_source().uniform(0, 1) < 0.6:
                there.add(name)
                await join(cluster, name)
            else:
                await faults.kill()
            await cluster.sleep(random_source().uniform(0, 5))
        await faults.heal()
        await cluster.sleep(1500)
        await cluster.settle()
        found = await told(cluster)
        assert set(found) == {f"g.r{number}" for number in range(4)}
        assert {server for servers in found.values() for server in servers} <= there


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
