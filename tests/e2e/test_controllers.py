"""Effects of the controllers as seen with kubectl: `cluster-up` with real processes, and openssl for certificates."""

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ClusterUp

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl", "openssl")]

Tree = dict[str, Any]
SECONDS = 60.0
SERVICE_NAME = "kubernetes.io/service-name"


class User:
    """Uses a cluster by kubectl."""

    def __init__(self, cluster: ClusterUp) -> None:
        self.folder, self.url = cluster.folder, cluster.url

    def run(self, *words: str, stdin: Tree | None = None, config: str = "") -> subprocess.CompletedProcess[str]:
        config = config or str(self.folder / "admin.kubeconfig")
        command = (os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={config}", *words)
        encoded = json.dumps(stdin) if stdin else ""
        return subprocess.run(command, input=encoded, capture_output=True, text=True, check=False, timeout=60)

    def kubectl(self, *words: str, stdin: Tree | None = None) -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def create(self, kind: str, name: str, namespace: str = "", version: str = "v1", **parts: Any) -> Tree:
        where = {"namespace": namespace} if namespace else {}
        metadata = {"name": name, **where, **parts.pop("metadata", {})}
        tree = {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}
        made: Tree = json.loads(self.kubectl("create", "-f", "-", "-o", "json", stdin=tree))
        return made

    def pod(self, name: str, namespace: str, *, ip: str = "", node: str = "", **metadata: Any) -> Tree:
        spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
        made = self.create("Pod", name, namespace, metadata=metadata, spec=spec)
        if ip:
            ready = {"type": "Ready", "status": "True"}
            status = {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready]}}
            self.kubectl("patch", "pod", name, "-n", namespace, "--subresource=status", "-p", json.dumps(status))
        return made

    def read(self, *words: str) -> Tree:
        found: Tree = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    def wait_until(self, holds: Callable[[], Any]) -> Any:
        """Wait for a true result, and return it."""
        deadline = time.monotonic() + SECONDS
        while not (found := holds()):
            assert time.monotonic() < deadline, "nothing happened"
            time.sleep(0.1)
        return found

    def is_there(self, *words: str) -> bool:
        return self.run("get", *words).returncode == 0


@pytest.fixture
def up(cluster: ClusterUp) -> User:
    """The administrator of the shared cluster."""
    return User(cluster)


@pytest.fixture
def space(up: User, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].rstrip("-")
    up.kubectl("create", "namespace", name)
    return name


def owner(of: Tree, **more: Any) -> Tree:
    meta = of["metadata"]
    return {"apiVersion": of["apiVersion"], "kind": of["kind"], "name": meta["name"], "uid": meta["uid"], **more}


def test_namespace_gets_account_and_ca_and_is_deleted(up: User, space: str) -> None:
    up.wait_until(lambda: up.is_there("serviceaccount", "default", "-n", space))
    up.wait_until(lambda: up.is_there("configmap", "kube-root-ca.crt", "-n", space))
    published = up.read("configmap", "kube-root-ca.crt", "-n", space)["data"]["ca.crt"]
    assert published == (up.folder / "ca.crt").read_text()
    up.kubectl("delete", "namespace", space, "--timeout=20s")
    assert not up.is_there("namespace", space)


def test_endpoint_slices_list_ready_pods(up: User, space: str) -> None:
    up.kubectl("create", "service", "clusterip", "web", "--tcp=80:8080", "-n", space)
    up.pod("p", space, ip="10.1.2.3", labels={"app": "web"})

    def addresses() -> list[str]:
        slices = up.read("endpointslices", "-n", space, "-l", f"{SERVICE_NAME}=web")["items"]
        return [address for one in slices for end in one.get("endpoints") or () for address in end["addresses"]]

    up.wait_until(lambda: addresses() == ["10.1.2.3"])
    assert "10.1.2.3:8080" in up.kubectl("describe", "service", "web", "-n", space)
    up.kubectl("delete", "pod", "p", "-n", space, "--now")
    up.wait_until(lambda: addresses() == [])


def test_manual_endpoints_are_mirrored(up: User, space: str) -> None:
    up.create("Service", "db", space, spec={"ports": [{"port": 5432}]})
    subsets = [{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 5432}]}]
    up.create("Endpoints", "db", space, subsets=subsets)
    listed = ("endpointslices", "-n", space, "-l", f"{SERVICE_NAME}=db")
    (mirror,) = up.wait_until(lambda: up.read(*listed)["items"])
    assert mirror["endpoints"][0]["addresses"] == ["192.0.2.7"]
    assert (
        mirror["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
        == "endpointslicemirroring-controller.k8s.io"
    )


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_dependents_follow_the_cascade_option(up: User, cascade: str) -> None:
    space = f"cascade-{cascade}"
    up.kubectl("create", "namespace", space)
    boss = up.create("ConfigMap", "boss", space)
    reference = owner(boss, blockOwnerDeletion=True)
    for number in range(3):
        up.create("ConfigMap", f"c-{number}", space, metadata={"ownerReferences": [reference]})
    up.kubectl("delete", "configmap", "boss", "-n", space, f"--cascade={cascade}", "--timeout=20s")

    def left() -> dict[str, int]:
        items = up.read("configmaps", "-n", space)["items"]
        names = [item["metadata"] for item in items if item["metadata"]["name"] != "kube-root-ca.crt"]
        return {one["name"]: len(one.get("ownerReferences", ())) for one in names}

    assert "boss" not in left()
    wanted = {"c-0": 0, "c-1": 0, "c-2": 0} if cascade == "orphan" else {}
    up.wait_until(lambda: left() == wanted)


def test_taint_evicts_pods_without_toleration(up: User, space: str) -> None:
    up.create("Node", "n1")
    up.pod("frail", space, node="n1")
    up.kubectl("taint", "nodes", "n1", "fire=hot:NoExecute")
    up.wait_until(lambda: "deletionTimestamp" in up.kubectl("get", "pod", "-n", space, "-o", "json"))
    up.wait_until(lambda: "TaintManagerEviction" in up.kubectl("get", "events", "-n", space))


def test_autoscaler_reports_missing_metrics(up: User, space: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    up.create("ReplicaSet", "web", space, "apps/v1", spec=spec)
    up.kubectl("autoscale", "replicaset", "web", "-n", space, "--min=3", "--max=5", "--cpu-percent=50")
    up.wait_until(lambda: up.read("replicaset", "web", "-n", space)["spec"]["replicas"] == 3)
    up.wait_until(lambda: "SuccessfulRescale" in up.kubectl("describe", "hpa", "web", "-n", space))


def openssl(*words: str) -> str:
    done = subprocess.run(("openssl", *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_approved_certificate_request_authenticates(up: User, tmp_path: Path) -> None:
    key, request, issued = (tmp_path / name for name in ("key.pem", "request.pem", "issued.pem"))
    openssl(
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(request),
        "-subj",
        "/O=people/CN=ann",
    )
    up.create(
        "CertificateSigningRequest",
        "ann",
        version="certificates.k8s.io/v1",
        spec={
            "request": base64.b64encode(request.read_bytes()).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            "expirationSeconds": 3600,
        },
    )
    time.sleep(1)
    assert "certificate" not in up.read("csr", "ann")["status"], "nobody has approved it"
    up.kubectl("certificate", "approve", "ann")
    up.wait_until(lambda: "certificate" in up.read("csr", "ann")["status"])
    issued.write_bytes(base64.b64decode(up.read("csr", "ann")["status"]["certificate"]))
    assert "OK" in openssl("verify", "-purpose", "sslclient", "-CAfile", str(up.folder / "client-ca.crt"), str(issued))
    server = (f"--server={up.url}", f"--certificate-authority={up.folder / 'ca.crt'}")
    shown = (f"--client-certificate={issued}", f"--client-key={key}")
    done = up.run("auth", "whoami", "-o", "json", *server, *shown, config=os.devnull)
    assert json.loads(done.stdout)["status"]["userInfo"]["username"] == "ann", done.stderr
