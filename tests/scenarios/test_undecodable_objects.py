"""An object that cannot be decoded any more does not count as deleted, in a whole cluster."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from controller_manager.common.api.core import CONFIG_MAPS, ENDPOINTS, NODES, PODS, SERVICES, ConfigMap, Endpoints, Node
from controller_manager.common.api.discovery import ENDPOINT_SLICES
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing import Cluster, builders

pytestmark = pytest.mark.virtual

WEB = Key("default", "web")
TOUCH = {"metadata": {"annotations": {"touched": "yes"}}}


class CorruptedAnswers:
    """Corrupts a field in the answers for some resources while `on` is set."""

    def __init__(self, cluster: Cluster, old: bytes, new: bytes, *paths: str) -> None:
        self.on = False
        self._cluster, self._old, self._new = cluster, old, new
        for path in paths:
            cluster.serve_beside(path, self._answer)

    async def _answer(self, request: Request) -> Response:
        response = await self._cluster.api.handle(request)
        user = request.headers.get("user-agent", "")
        if request.method != "GET" or "/" not in user:  # the test itself reads valid answers
            return response
        body = response.body
        corrupted = self._spoil(body) if isinstance(body, bytes) else self._stream(body)
        return Response(response.status, response.headers, corrupted)

    def _spoil(self, data: bytes) -> bytes:
        return data.replace(self._old, self._new) if self.on else data

    async def _stream(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in body:
            yield self._spoil(chunk)


async def addresses(cluster: Cluster) -> list[str]:
    found: Endpoints = await cluster.client.get(ENDPOINTS, WEB)
    return [address.ip for subset in found.subsets for address in subset.addresses]


async def run_pod(cluster: Cluster, name: str, ip: str, node: str = "") -> None:
    made = builders.pod(name, labels={"app": "web"}, ip=ip)
    made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name=node))
    there = await cluster.client.create(PODS, made)
    await cluster.client.update(PODS, msgspec.structs.replace(there, status=made.status), subresource="status")


async def test_dependents_of_undecodable_service_stay_and_recover() -> None:
    async with Cluster() as cluster:
        corrupted = CorruptedAnswers(
            cluster, b'"type":"ClusterIP"', b'"type":5', "/api/v1/services", "/api/v1/namespaces/default/services"
        )
        replica = await cluster.manage(
            "--leader-elect=false",
            "--controllers=endpoints-controller,endpointslice-controller,garbage-collector-controller",
        )
        service = await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.client.create(
            SERVICES, builders.service("other", {"app": "web"}, type="ExternalName", externalName="a.b")
        )
        owner = OwnerReference(api_version="v1", kind="Service", name="web", uid=service.metadata.uid)
        owned = ConfigMap(metadata=ObjectMeta(name="owned", namespace="default", owner_references=(owner,)))
        await cluster.client.create(CONFIG_MAPS, owned)
        await run_pod(cluster, "a", "10.1.0.1")
        await cluster.settle()
        corrupted.on = True
        await cluster.client.patch(SERVICES, WEB, TOUCH)
        await cluster.sleep(120)
        [services] = [one for one in replica.manager.state().informers if one.selection == "services"]
        assert [sentence.split(":")[0] for sentence in services.unreadable] == ["default/web"]
        assert services.failures == 0
        assert await addresses(cluster) == ["10.1.0.1"]
        assert len((await cluster.client.list(ENDPOINT_SLICES, "default")).items) >= 1
        assert await cluster.client.get(CONFIG_MAPS, Key("default", "owned"))
        corrupted.on = False
        await cluster.client.patch(SERVICES, WEB, {"metadata": {"annotations": {"touched": "again"}}})
        await run_pod(cluster, "b", "10.1.0.2")
        await cluster.advance(60)
        assert await addresses(cluster) == ["10.1.0.1", "10.1.0.2"]


async def test_pods_of_undecodable_node_are_not_deleted() -> None:
    async with Cluster() as cluster:
        corrupted = CorruptedAnswers(cluster, b'"providerID":"x"', b'"providerID":5', "/api/v1/nodes")
        node = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"spec":{"providerID":"x"}}'
        await cluster.client.create(NODES, Node.decode(node))
        replica = await cluster.manage("--leader-elect=false", "--controllers=podgc", strict=False)
        await run_pod(cluster, "a", "10.1.0.1", node="n")
        await cluster.settle()
        corrupted.on = True
        await cluster.client.patch(NODES, Key("", "n"), TOUCH)
        await cluster.sleep(600)
        [nodes] = [one for one in replica.manager.state().informers if one.selection == "nodes"]
        assert len(nodes.unreadable) == 1
        assert await cluster.client.get(PODS, Key("default", "a"))
