"""kubectl commands beyond reading and writing objects: they work, or fail with a clear error."""

import base64
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]
CONTAINER = {"name": "main", "image": "example.org/app:1", "resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}}
NO_ADDRESS = "no preferred addresses found"
READY = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {
            "name": "main",
            "image": "i",
            "imageID": "i",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {}},
            "resources": CONTAINER["resources"],  # as nodes report if they can resize pods
        }
    ],
}


@pytest.fixture
def pod(admin: Any, namespace: str) -> str:
    """A running pod on its own node; both have this name."""
    name = f"p-{namespace[-40:].lstrip('-')}"
    room = {"allocatable": {"cpu": "4", "memory": "8Gi"}}
    admin.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": room})
    spec = {"nodeName": name, "terminationGracePeriodSeconds": 0, "containers": [CONTAINER]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    made = admin.ask("POST", pods, {"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec})
    admin.ask("PUT", f"{pods}/{name}/status", {**made, "status": {**made["status"], **READY}})
    return name


@pytest.fixture
def deployment(admin: Any, namespace: str) -> str:
    labels = {"app": "web"}
    container = {"name": "app", "image": "example.org/app:1", "ports": [{"containerPort": 80}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    admin.ask("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": "web"}, "spec": spec})
    return "deployment/web"


def test_expose_allocates_address_and_port(kubectl: Kubectl, namespace: str, deployment: str) -> None:
    kubectl("-n", namespace, "expose", deployment, "--type=NodePort")
    spec = json.loads(kubectl("-n", namespace, "get", "service", "web", "-o", "json"))["spec"]
    assert spec["clusterIP"].startswith("10.0.")
    assert 30000 <= spec["ports"][0]["nodePort"] <= 32767
    shown = kubectl("-n", namespace, "describe", "service", "web")
    assert spec["clusterIP"] in shown
    manifest = kubectl("-n", namespace, "get", "service", "web", "-o", "json")
    kubectl("-n", namespace, "apply", "-f", "-", stdin=json.loads(manifest))
    kubectl("-n", namespace, "patch", "service", "web", "-p", '{"spec":{"type":"ClusterIP"}}')
    after = json.loads(kubectl("-n", namespace, "get", "service", "web", "-o", "json"))["spec"]
    assert (after["clusterIP"], "nodePort" in after["ports"][0]) == (spec["clusterIP"], False)


def test_allocated_address_is_rejected(kubectl: Kubectl, kubectl_error: Callable[..., str], namespace: str) -> None:
    found = kubectl_error("-n", namespace, "create", "service", "clusterip", "a", "--clusterip=10.0.0.1", "--tcp=80")
    assert "failed to allocate IP 10.0.0.1: provided IP is already allocated" in found


def test_scale_and_autoscale(kubectl: Kubectl, namespace: str, deployment: str) -> None:
    kubectl("-n", namespace, "scale", deployment, "--replicas=3", "--current-replicas=1")
    assert kubectl("-n", namespace, "get", deployment, "-o", "jsonpath={.spec.replicas}") == "3"
    kubectl("-n", namespace, "autoscale", deployment, "--min=1", "--max=4")
    assert kubectl("-n", namespace, "get", "hpa", "web", "-o", "jsonpath={.spec.maxReplicas}") == "4"


def test_replication_controller_is_scaled(kubectl: Kubectl, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
    body = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "rc"}}
    kubectl("-n", namespace, "create", "-f", "-", stdin=body | {"spec": {"replicas": 1, "template": template}})
    kubectl("-n", namespace, "scale", "rc", "rc", "--replicas=2")
    assert kubectl("-n", namespace, "get", "rc", "rc", "-o", "jsonpath={.spec.replicas}") == "2"


def test_rollout_commands_without_controllers(kubectl: Kubectl, namespace: str, deployment: str) -> None:
    for arguments, said in (
        (("set", "image", deployment, "app=example.org/app:2"), "image updated"),
        (("set", "resources", deployment, "--limits=cpu=1"), "resource requirements updated"),
        (("rollout", "restart", deployment), "restarted"),
        (("rollout", "pause", deployment), "paused"),
        (("rollout", "resume", deployment), "resumed"),
        (("rollout", "history", deployment), "No rollout history found"),
    ):
        assert said in kubectl("-n", namespace, *arguments)


def test_drain_respects_budgets(kubectl: Kubectl, run: Callable[..., Any], namespace: str, pod: str) -> None:
    kubectl("-n", namespace, "create", "poddisruptionbudget", "b", "--selector=app=a", "--min-available=1")
    budget = ("-n", namespace, "patch", "pdb", "b", "--subresource=status", "--type=merge", "-p")
    full = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    kubectl(*budget, json.dumps({"status": {**full, "expectedPods": 1}}))
    drain = ("drain", pod, "--force", "--ignore-daemonsets", "--timeout=2s")
    _, _, complaints = run(*drain)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in complaints
    assert kubectl("get", "node", pod, "-o", "jsonpath={.spec.unschedulable}") == "true"
    kubectl(*budget, json.dumps({"status": {"disruptionsAllowed": 1}}))
    assert f"pod/{pod} evicted" in kubectl(*drain)
    left = json.loads(kubectl("-n", namespace, "get", "pdb", "b", "-o", "json"))["status"]
    assert (left["disruptionsAllowed"], list(left["disruptedPods"])) == (0, [pod])
    assert "uncordoned" in kubectl("uncordon", pod)


def certificate_request(name: str) -> dict[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    spec = {"request": base64.b64encode(pem).decode(), "signerName": "example.com/s", "usages": ["client auth"]}
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    return kind | {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(("verdict", "shown"), [("approve", "Approved"), ("deny", "Denied")])
def test_certificate_requests_are_approved_and_denied(
    kubectl: Kubectl, namespace: str, verdict: str, shown: str
) -> None:
    name = namespace
    kubectl("create", "-f", "-", stdin=certificate_request(name))
    line = kubectl("get", "csr", name, "--no-headers")
    assert "kubernetes-admin" in line
    assert line.endswith("Pending")
    kubectl("certificate", verdict, name)
    assert kubectl("get", "csr", name, "--no-headers").endswith(shown)


def test_debug_adds_a_container(kubectl: Kubectl, namespace: str, pod: str) -> None:
    kubectl("-n", namespace, "debug", pod, "--image=busybox", "--container=dbg", "--profile=general", "--attach=false")
    path = "jsonpath={.spec.ephemeralContainers[*].name}"
    assert kubectl("-n", namespace, "get", "pod", pod, "-o", path) == "dbg"


def test_debug_waits_for_its_container(
    launch: Callable[..., "subprocess.Popen[str]"], kubectl: Kubectl, namespace: str, pod: str
) -> None:
    """kubectl waits for the container in a watch, and then reports why it cannot attach."""
    child = launch("-n", namespace, "debug", "-i", pod, "--image=busybox", "--container=in", "--profile=general")
    path = "jsonpath={.spec.ephemeralContainers[*].name}"
    while "in" not in kubectl("-n", namespace, "get", "pod", pod, "-o", path).split():
        assert child.poll() is None
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    container = {"name": "in", "image": "busybox", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {"status": {"phase": "Running", "ephemeralContainerStatuses": [container]}}
    kubectl("-n", namespace, "patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    _, complaints = child.communicate(timeout=30)
    assert child.returncode == 1
    assert NO_ADDRESS in complaints


@pytest.mark.since(32)
def test_pod_is_resized(kubectl: Kubectl, kubectl_error: Callable[..., str], namespace: str, pod: str) -> None:
    wanted = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}}
    kubectl("-n", namespace, "patch", "pod", pod, "--subresource=resize", "-p", json.dumps(wanted))
    path = "jsonpath={.spec.containers[0].resources.requests.cpu}"
    assert kubectl("-n", namespace, "get", "pod", pod, "-o", path) == "200m"
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Mi"}, "requests": {"cpu": "1"}}
    found = kubectl_error("-n", namespace, "patch", "pod", pod, "--subresource=resize", "-p", json.dumps(wanted))
    assert "QOS Class may not change" in found


@pytest.mark.parametrize(
    "arguments",
    [
        ("logs", "POD"),
        ("logs", "-f", "--pod-running-timeout=1s", "POD"),
        ("exec", "POD", "--", "ls"),
        ("attach", "POD"),
        ("port-forward", "POD", "8080:80"),
        ("cp", "POD:/a", "/nowhere"),
        ("get", "--raw", "/api/v1/nodes/POD/proxy/metrics"),
        ("get", "--raw", "/api/v1/namespaces/NS/pods/POD:80/proxy/"),
    ],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_node_requests_fail_without_node_address(
    kubectl: Kubectl, kubectl_error: Callable[..., str], namespace: str, pod: str, arguments: tuple[str, ...]
) -> None:
    named = [word.replace("POD", pod).replace("NS", namespace) for word in arguments]
    why = "address not allowed" if "/pods/" in named[-1] else NO_ADDRESS
    assert why in kubectl_error("-n", namespace, *named)
    absent = [word.replace(pod, "nobody").replace("default", "nobody") for word in named]
    assert "not found" in kubectl_error("-n", namespace, *absent)


def test_field_selectors(kubectl: Kubectl, kubectl_error: Callable[..., str], namespace: str, pod: str) -> None:
    def names(selector: str) -> list[str]:
        shown = kubectl("-n", namespace, "get", "pods", f"--field-selector={selector}", "-o", "name")
        return shown.split()

    for selector in (f"spec.nodeName={pod}", "status.phase!=Pending", f"metadata.name={pod},spec.restartPolicy=Always"):
        assert names(selector) == [f"pod/{pod}"]
    assert names("status.phase=Pending") == []
    found = kubectl_error("-n", namespace, "get", "pods", "--field-selector=spec.color=red")
    assert found.endswith("field label not supported: spec.color")


def test_kubectl_impersonates_a_user(kubectl: Kubectl) -> None:
    acting = ("--as=jane", "--as-group=dev", "--as-group=ops", "--as-uid=42")
    review = json.loads(kubectl("auth", "whoami", "-o", "json", *acting))
    assert review["status"]["userInfo"] == {
        "username": "jane",
        "uid": "42",
        "groups": ["dev", "ops", "system:authenticated"],
    }
    account = json.loads(kubectl("auth", "whoami", "-o", "json", "--as=system:serviceaccount:shop:seller"))
    groups = ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]
    assert account["status"]["userInfo"]["groups"] == groups
    assert kubectl("auth", "can-i", "create", "pods", "--as=jane").strip() == "yes"
