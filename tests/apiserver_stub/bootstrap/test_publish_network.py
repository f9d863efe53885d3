"""Objects that every cluster has after a start, however often the server starts."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from apiserver_stub.bootstrap import ClusterInfo, ServerAddress, bootstrap
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.runtime import Runtime
from tests.apiserver_stub.memory_backend import MemoryBackend

IN_DEFAULT = "/api/v1/namespaces/default"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    flags = ("--storage-backend=memory", "--advertise-address=192.0.2.1", "--service-cluster-ip-range=10.9.0.0/16")
    server = build(FLAGS.parse(flags), Runtime("test"))
    await server.start()
    yield server
    await server.stop()


async def get(api: ApiServer, path: str) -> Any:
    response = await api.handle(Request("GET", path, certificate=Certificate("test")))
    assert isinstance(response.body, bytes)
    assert response.status == 200, response.body
    return msgspec.json.decode(response.body)


async def test_system_namespaces_exist(api: ApiServer) -> None:
    found = await get(api, "/api/v1/namespaces")
    names = [item["metadata"]["name"] for item in found["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_kubernetes_service_and_endpoint_slice_exist(api: ApiServer) -> None:
    service = await get(api, f"{IN_DEFAULT}/services/kubernetes")
    assert service["spec"]["clusterIP"] == "10.9.0.1"
    assert service["spec"]["ports"] == [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    endpoints = await get(api, f"{IN_DEFAULT}/endpoints/kubernetes")
    ports = [{"name": "https", "port": 6443, "protocol": "TCP"}]
    assert endpoints["subsets"] == [{"addresses": [{"ip": "192.0.2.1"}], "ports": ports}]
    found = await get(api, SLICE)
    assert (found["addressType"], found["endpoints"][0]["addresses"], found["ports"]) == ("IPv4", ["192.0.2.1"], ports)
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "kubernetes"


async def test_service_cidr_is_published(api: ApiServer) -> None:
    found = await get(api, "/apis/networking.k8s.io/v1/servicecidrs/kubernetes")
    assert found["spec"] == {"cidrs": ["10.9.0.0/16"]}
    assert [(c["type"], c["status"]) for c in found["status"]["conditions"]] == [("Ready", "True")]


async def test_changed_service_range_keeps_address() -> None:
    log = MemoryBackend()
    for network in ("10.9.0.0/16", "10.10.0.0/16"):
        flags = ("--storage-backend=memory", f"--service-cluster-ip-range={network}")
        server = build(FLAGS.parse(flags), Runtime("test"), embedded_storage(log))
        await server.start()
        service = await get(server, f"{IN_DEFAULT}/services/kubernetes")
        assert service["spec"]["clusterIPs"] == ["10.9.0.1"]
        await server.stop()


async def test_second_start_writes_nothing(api: ApiServer) -> None:
    before = api.store.revision
    await api.settle(6443)
    assert api.store.revision == before


async def test_client_ca_is_published_and_restored(api: ApiServer) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    assert (await api.handle(Request("GET", path, certificate=Certificate("test")))).status == 404
    await api.settle(6443, {"client-ca-file": "PEM"})
    published = await get(api, path)
    assert published["data"] == {"client-ca-file": "PEM"}
    published["data"] = {"client-ca-file": "forged", "requestheader-allowed-names": "[]"}
    body, headers = msgspec.json.encode(published), {"content-type": "application/json"}
    await api.handle(Request("PUT", path, (), headers, body, Certificate("test")))
    await api.settle(6443, {"client-ca-file": "PEM"})
    assert (await get(api, path))["data"] == {"client-ca-file": "PEM", "requestheader-allowed-names": "[]"}
    await api.handle(Request("DELETE", path, certificate=Certificate("test")))
    await api.settle(6443, {"client-ca-file": "OTHER"})
    assert (await get(api, path))["data"] == {"client-ca-file": "OTHER"}


@pytest.mark.virtual
async def test_published_configmap_is_restored_after_edit(api: ApiServer) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    await api.settle(6443, {"client-ca-file": "PEM"})
    async with asyncio.TaskGroup() as group:
        upkeep = group.create_task(api.keep_settled(6443, lambda: {"client-ca-file": "PEM"}))
        for _ in range(2):
            await api.handle(Request("DELETE", path, certificate=Certificate("test")))
            await asyncio.sleep(61)
            assert (await get(api, path))["data"] == {"client-ca-file": "PEM"}
        upkeep.cancel()


async def test_reader_role_of_authentication_config_exists(api: ApiServer) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"
    role = await get(api, f"{roles}/extension-apiserver-authentication-reader")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"]}
    assert role["rules"] == [{**rule, "verbs": ["get", "list", "watch"]}]


async def test_changed_server_address_is_published(api: ApiServer) -> None:
    await bootstrap(api.handle, api.scope, ClusterInfo(ServerAddress("10.9.0.1", "192.0.2.8", 7443)), set().add)
    service = await get(api, f"{IN_DEFAULT}/services/kubernetes")
    endpoints = await get(api, f"{IN_DEFAULT}/endpoints/kubernetes")
    assert service["spec"]["ports"][0]["targetPort"] == 7443
    assert endpoints["subsets"][0]["addresses"] == [{"ip": "192.0.2.8"}]
    assert (await get(api, SLICE))["endpoints"][0]["addresses"] == ["192.0.2.8"]


async def test_labels_added_by_others_are_preserved(api: ApiServer) -> None:
    path = f"{IN_DEFAULT}/services/kubernetes"
    service = await get(api, path)
    service["metadata"]["labels"]["team"] = "blue"
    body = msgspec.json.encode(service)
    headers = {"content-type": "application/json"}
    await api.handle(Request("PUT", path, (), headers, body, Certificate("test")))
    await bootstrap(api.handle, api.scope, ClusterInfo(ServerAddress("10.9.0.1", "192.0.2.1", 7443)), set().add)
    assert (await get(api, path))["metadata"]["labels"]["team"] == "blue"
