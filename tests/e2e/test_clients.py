"""Popular client libraries, unchanged: the official one, its dynamic form, kr8s, and a kopf operator."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kr8s
import kr8s.asyncio
import pytest
from kr8s.asyncio.objects import ConfigMap, Deployment, Pod
from kubernetes import client as official
from kubernetes import config, dynamic, utils, watch

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]

OPERATOR = """
import kopf

@kopf.on.startup()
def settings(settings, **_):
    settings.posting.enabled = True
    settings.persistence.finalizer = "example.com/greeter"

@kopf.on.create("configmaps", labels={"greet": kopf.PRESENT})
def greet(body, patch, **_):
    kopf.info(body, reason="Greeted", message="said hello")
    patch.setdefault("data", {})["greeting"] = "hello " + body["metadata"]["name"]

@kopf.on.update("configmaps", labels={"greet": kopf.PRESENT}, field="data.mood")
def answer(old, new, patch, **_):
    patch.setdefault("data", {})["answer"] = f"{old} then {new}"

@kopf.on.delete("configmaps", labels={"greet": kopf.PRESENT})
async def part(namespace, name, **_):
    print(f"goodbye {namespace}/{name}", flush=True)
"""

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def deployment(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": POD["spec"]},
        },
    }


@pytest.fixture
def api(server: Any) -> Iterator[official.ApiClient]:
    with config.new_client_from_config(config_file=str(server.kubeconfig)) as client:
        yield client


def refusal(call: Callable[..., Any], *arguments: Any, **more: Any) -> tuple[int, str]:
    """The code and reason of an error of the official client."""
    with pytest.raises(official.ApiException) as error:
        call(*arguments, **more)
    return error.value.status, json.loads(error.value.body)["reason"]


def test_official_core(api: official.ApiClient, namespace: str) -> None:
    core = official.CoreV1Api(api)
    made = core.create_namespaced_pod(namespace, POD)
    assert (made.status.phase, made.spec.restart_policy) == ("Pending", "Always")
    assert refusal(core.create_namespaced_pod, namespace, POD) == (409, "AlreadyExists")
    assert core.read_namespaced_pod("a", namespace).metadata.uid == made.metadata.uid
    assert refusal(core.read_namespaced_pod, "b", namespace) == (404, "NotFound")
    assert refusal(core.create_namespaced_pod, namespace, POD | {"metadata": {"name": "A"}}) == (422, "Invalid")
    core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"tier": "x"}}})
    core.patch_namespaced_pod("a", namespace, [{"op": "add", "path": "/metadata/labels/more", "value": "y"}])
    seen = core.read_namespaced_pod("a", namespace)
    assert seen.metadata.labels == {"app": "a", "tier": "x", "more": "y"}
    made.metadata.labels = {"stale": "yes"}
    assert refusal(core.replace_namespaced_pod, "a", namespace, made) == (409, "Conflict")
    seen.metadata.labels = {"app": "b"}
    assert core.replace_namespaced_pod("a", namespace, seen).metadata.labels == {"app": "b"}
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    assert core.patch_namespaced_pod_status("a", namespace, ready).status.phase == "Running"
    found = core.list_namespaced_pod(namespace, label_selector="app=b", field_selector="status.phase=Running")
    assert [pod.metadata.name for pod in found.items] == ["a"]
    assert core.delete_namespaced_pod("a", namespace).metadata.name == "a"
    assert core.list_namespaced_pod(namespace).items == []


def test_official_lists_in_chunks(api: official.ApiClient, namespace: str) -> None:
    core = official.CoreV1Api(api)
    for number in range(5):
        core.create_namespaced_config_map(namespace, {"metadata": {"name": f"c{number}"}, "data": {"n": str(number)}})
    names, token, left = [], "", []
    while not names or token:
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        left.append(page.metadata.remaining_item_count)
        token = page.metadata._continue
    assert (names, left) == (["c0", "c1", "c2", "c3", "c4"], [3, 1, None])
    core.delete_collection_namespaced_config_map(namespace)
    assert core.list_namespaced_config_map(namespace).items == []


def test_official_watches(api: official.ApiClient, namespace: str) -> None:
    core = official.CoreV1Api(api)
    version = core.list_namespaced_pod(namespace).metadata.resource_version
    core.create_namespaced_pod(namespace, POD)
    core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"tier": "x"}}})
    core.delete_namespaced_pod("a", namespace)
    stream = watch.Watch().stream(
        core.list_namespaced_pod, namespace, resource_version=version, allow_watch_bookmarks=True, timeout_seconds=1
    )
    events = [(event["type"], event["object"].metadata.labels) for event in stream if event["type"] != "BOOKMARK"]
    labels = {"app": "a", "tier": "x"}
    assert events == [("ADDED", {"app": "a"}), ("MODIFIED", labels), ("MODIFIED", labels), ("DELETED", labels)]


def test_official_apps(api: official.ApiClient, namespace: str) -> None:
    apps = official.AppsV1Api(api)
    utils.create_from_dict(api, deployment("web"), namespace=namespace)
    scale = apps.read_namespaced_deployment_scale("web", namespace)
    assert (scale.spec.replicas, scale.status.selector) == (1, "app=web")
    scale.spec.replicas = 4
    apps.replace_namespaced_deployment_scale("web", namespace, scale)
    found = apps.read_namespaced_deployment("web", namespace)
    assert (found.spec.replicas, found.metadata.generation) == (4, 2)
    found.status.replicas = 3
    assert apps.replace_namespaced_deployment_status("web", namespace, found).status.replicas == 3
    assert [item.metadata.name for item in apps.list_deployment_for_all_namespaces().items].count("web") >= 1
    done = apps.delete_namespaced_deployment("web", namespace, propagation_policy="Background")
    assert done["status"] == "Success"


def test_official_discovery_and_reviews(api: official.ApiClient) -> None:
    assert official.VersionApi(api).get_code().minor == "36"
    assert "apps" in [group.name for group in official.ApisApi(api).get_api_versions().groups]
    assert "pods/status" in [resource.name for resource in official.CoreV1Api(api).get_api_resources().resources]
    review = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
    assert official.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed
    me = official.AuthenticationV1Api(api).create_self_subject_review({})
    assert me.status.user_info.username == "kubernetes-admin"


def test_dynamic_client(api: official.ApiClient, namespace: str, tmp_path: Path) -> None:
    client = dynamic.DynamicClient(api, cache_file=str(tmp_path / "cache"))
    deployments = client.resources.get(api_version="apps/v1", kind="Deployment")
    deployments.create(body=deployment("web"), namespace=namespace)
    patch = {"spec": {"replicas": 2}}
    deployments.patch(name="web", namespace=namespace, body=patch, content_type="application/merge-patch+json")
    assert deployments.get(name="web", namespace=namespace).spec.replicas == 2
    assert deployments.scale.get(name="web", namespace=namespace).spec.replicas == 2
    events = deployments.watch(namespace=namespace, timeout=1)
    assert [(event["type"], event["object"].metadata.name) for event in events] == [("ADDED", "web")]
    deployments.delete(name="web", namespace=namespace)
    assert deployments.get(namespace=namespace).items == []


@pytest.mark.filterwarnings("ignore:Kubernetes version")
async def test_kr8s(server: Any, namespace: str) -> None:
    api = await kr8s.asyncio.api(kubeconfig=str(server.kubeconfig), namespace=namespace)
    assert (await api.version())["minor"] == "36"
    pod = await Pod(POD, namespace=namespace, api=api)
    await pod.create()
    assert await pod.exists()
    await pod.label(tier="x")
    await pod.annotate({"note": "y"})
    await pod.patch({"status": {"phase": "Running"}}, subresource="status")
    assert (pod.labels["tier"], pod.annotations["note"], pod.status.phase) == ("x", "y", "Running")
    found = [item.name async for item in api.get("pods", namespace=namespace, label_selector={"tier": "x"})]
    assert found == ["a"]
    web = await Deployment(deployment("web"), namespace=namespace, api=api)
    await web.create()
    await web.scale(0)
    await web.refresh()
    assert web.replicas == 0
    await (await ConfigMap({"metadata": {"name": "kept"}}, namespace=namespace, api=api)).create()
    seen = []
    async for event, item in api.watch("configmaps", namespace=namespace):
        seen.append((event, item.name))
        if event == "DELETED":
            break
        await item.delete()
    assert seen == [("ADDED", "kept"), ("DELETED", "kept")]
    await pod.delete()
    with pytest.raises(kr8s.NotFoundError):
        await Pod.get("a", namespace=namespace, api=api)


@pytest.fixture
def operator(server: Any, namespace: str, tmp_path: Path) -> Iterator[list[str]]:
    """A kopf operator that runs during the test; its output lines."""
    (tmp_path / "operator.py").write_text(OPERATOR)
    command = [sys.executable, "-m", "kopf", "run", "--standalone", f"--namespace={namespace}", "operator.py"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(server.kubeconfig)}
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    assert child.stdout is not None
    reader = threading.Thread(target=lines.extend, args=(child.stdout,))
    reader.start()
    yield lines
    child.terminate()
    child.wait(timeout=20)
    reader.join()


def wait_until(true: Callable[[], bool], what: Callable[[], object]) -> None:
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    pytest.fail(str(what()))


def test_kopf_operator(operator: list[str], api: official.ApiClient, namespace: str) -> None:
    core = official.CoreV1Api(api)
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "anna", "labels": {"greet": "yes"}}})
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "bert"}})

    def anna() -> dict[str, str]:
        return core.read_namespaced_config_map("anna", namespace).data or {}

    wait_until(lambda: anna().get("greeting") == "hello anna", lambda: "".join(operator))
    core.patch_namespaced_config_map("anna", namespace, {"data": {"mood": "good"}})
    wait_until(lambda: anna().get("answer") == "None then good", lambda: "".join(operator))
    noted = core.list_namespaced_event(namespace, field_selector="involvedObject.name=anna,reason=Greeted")
    assert [event.message for event in noted.items] == ["said hello"]
    assert core.read_namespaced_config_map("anna", namespace).metadata.finalizers == ["example.com/greeter"]
    core.delete_namespaced_config_map("anna", namespace)
    left = ["bert"]
    wait_until(lambda: [c.metadata.name for c in core.list_namespaced_config_map(namespace).items] == left, anna)
    wait_until(lambda: f"goodbye {namespace}/anna\n" in operator, lambda: "".join(operator))
    assert core.read_namespaced_config_map("bert", namespace).data is None
    assert not [line for line in operator if "Traceback" in line], "".join(operator)
