"""More client libraries, unchanged: kubernetes_asyncio, lightkube, @kubernetes/client-node, and helm's own library."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import kubernetes_asyncio
import lightkube
import pytest
from kubernetes_asyncio import client as asynchronous
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.types import CascadeType, PatchType

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
CHART = HERE.parents[1] / "charts" / "cluster-controller-manager"


@pytest.fixture
async def api(server: Any) -> AsyncIterator[asynchronous.ApiClient]:
    configuration = asynchronous.Configuration()
    await kubernetes_asyncio.config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
    async with asynchronous.ApiClient(configuration) as client:
        yield client


async def test_kubernetes_asyncio(api: asynchronous.ApiClient, namespace: str) -> None:
    core = asynchronous.CoreV1Api(api)
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await core.create_namespaced_pod(namespace, pod)
    assert (made.status.phase, made.spec.restart_policy) == ("Pending", "Always")
    await core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"tier": "x"}}})
    await core.patch_namespaced_pod("a", namespace, [{"op": "add", "path": "/metadata/labels/more", "value": "y"}])
    with pytest.raises(asynchronous.ApiException) as refusal:
        await core.replace_namespaced_pod("a", namespace, made)
    assert (refusal.value.status, json.loads(refusal.value.body)["reason"]) == (409, "Conflict")
    await core.delete_namespaced_pod("a", namespace)
    version = made.metadata.resource_version
    stream = kubernetes_asyncio.watch.Watch().stream(
        core.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=1
    )
    shown = [(event["type"], event["object"].metadata.labels) async for event in stream]
    labels = {"tier": "x", "more": "y"}
    assert shown == [("MODIFIED", {"tier": "x"}), ("MODIFIED", labels), ("MODIFIED", labels), ("DELETED", labels)]
    dynamic = await kubernetes_asyncio.dynamic.DynamicClient(api)
    services = await dynamic.resources.get(api_version="v1", kind="Service")
    await services.create(body={"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}, namespace=namespace)
    assert (await services.get(name="s", namespace=namespace)).spec.ports[0].targetPort == 80
    patch = {"apiVersion": "v1", "kind": "Service", "metadata": {"labels": {"by": "apply"}}}
    applied = await services.server_side_apply(
        body=patch, name="s", namespace=namespace, field_manager="tests", force_conflicts=True
    )
    assert applied.metadata.labels.by == "apply"


def test_lightkube(server: Any, namespace: str) -> None:
    config = lightkube.KubeConfig.from_file(str(server.kubeconfig))
    client = lightkube.Client(config=config, namespace=namespace, field_manager="lightkube")
    client.create(ConfigMap(metadata=ObjectMeta(name="a", labels={"seen": "yes"}), data={"k": "1"}))
    assert client.get(ConfigMap, "a").data == {"k": "1"}
    client.patch(ConfigMap, "a", {"data": {"m": "2"}}, patch_type=PatchType.MERGE)
    client.patch(ConfigMap, "a", [{"op": "remove", "path": "/data/k"}], patch_type=PatchType.JSON)
    assert client.get(ConfigMap, "a").data == {"m": "2"}
    applied = client.apply(ConfigMap(metadata=ObjectMeta(name="b"), data={"k": "1"}))
    assert [(one.manager, one.operation) for one in applied.metadata.managedFields] == [("lightkube", "Apply")]
    again = client.apply(ConfigMap(metadata=ObjectMeta(name="b"), data={"other": "1"}))
    assert again.data == {"other": "1"}
    with pytest.raises(lightkube.ApiError) as refusal:
        client.apply(ConfigMap(metadata=ObjectMeta(name="b"), data={"other": "2"}), field_manager="somebody")
    assert (refusal.value.status.code, refusal.value.status.reason) == (409, "Conflict")
    assert [item.metadata.name for item in client.list(ConfigMap, labels={"seen": "yes"})] == ["a"]
    for kind, item in client.watch(ConfigMap, fields={"metadata.name": "a"}):
        if kind == "DELETED":
            break
        if kind == "ADDED":
            client.delete(ConfigMap, item.metadata.name, cascade=CascadeType.FOREGROUND)
            client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}}, patch_type=PatchType.MERGE)
    with pytest.raises(lightkube.ApiError) as missing:
        client.get(Deployment, "nothing")
    assert missing.value.status.reason == "NotFound"
    assert namespace in [item.metadata.name for item in client.list(Namespace)]


@pytest.mark.needs("node", "node clients")
def test_client_node(server: Any, namespace: str) -> None:
    command = ["node", str(HERE / "node" / "client.mjs"), str(server.kubeconfig), namespace]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output == {
        "created": ["a", True],
        "replaced": {"seen": "yes"},
        "conflict": [409, "Conflict"],
        "patches": [{"k": "2"}, {"k": "2", "m": "3"}, {"m": "3"}],
        "applied": [3, True],
        "scaled": 5,
        "events": output["events"],
        "seen": output["seen"],
        "pages": ["b", "c", "d", "e"],
        "missing": [404, 'pods "nobody" not found'],
        "version": "1",
        "groups": True,
    }
    assert output["events"][0] == ["MODIFIED", "a"]
    assert output["events"][-2:] == [["ADDED", "b"], ["DELETED", "a"]]
    assert [output["seen"][0], output["seen"][-1]] == [["add", "a"], ["delete", "a"]]


@pytest.mark.needs("helm")
@pytest.mark.parametrize("server_side", [True, False])
def test_helm(server: Any, namespace: str, kubectl: Callable[..., str], server_side: bool) -> None:
    """Helm 4 installs, upgrades, rolls back and uninstalls our own chart, checking it against the served schemas."""
    side = "server" if server_side else "client"
    command = [sys.executable, str(HERE / "helm_release.py"), str(server.kubeconfig), namespace, str(CHART), side]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["replicas"] == [2, 4, 2]
    assert [one["info"]["status"] for one in output["history"]] == ["superseded", "superseded", "deployed"]
    assert output["left"] == []
    assert "sh.helm.release" not in kubectl("get", "secrets", "-n", namespace, "-o", "name")


@pytest.mark.needs("helm")
def test_helm_hooks_lookups_subcharts_and_conflicts(server: Any, namespace: str) -> None:
    """Hooks, a lookup, a subchart, server errors, conflicts with other owners, and objects that outlive a release."""
    command = [sys.executable, str(HERE / "helm_shop.py"), str(server.kubeconfig), namespace]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert (output["install"], output["upgrade"], output["forced"], output["taken over"]) == ("", "", "", "")
    lasting = {"kept": {"deployments": "true"}, "till": {"release": "a"}}
    assert output["installed"] == {**lasting, "hooked": {"revision": "1"}}
    assert output["upgraded"] == {**lasting, "hooked": {"revision": "2"}}
    assert output["lookup"] is True
    assert 'spec.template.labels: Invalid value: "not a label"' in output["bad"]
    assert (output["after bad"], output["status"]) == (3, "failed")
    assert output["contested"].endswith('conflict with "somebody" using apps/v1: .spec.replicas')
    assert (output["after contest"], output["after force"]) == (9, 4)
    assert output["left"] == ["hooked", "kept"]
    assert 'key "meta.helm.sh/release-name" must equal "b"' in output["not ours"]
