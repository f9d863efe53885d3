"""A metrics server behind the API server: `kubectl top` and the autoscaler read it through aggregation, over TLS."""

import base64
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.serving.tls import KeyPair, issue, make_ca
from tests.e2e.conftest import ApiProcess

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl")]

ROOT = "/apis/metrics.k8s.io/v1beta1"
USAGE = {"cpu": "200m", "memory": "64Mi"}
TIMES = {"timestamp": "2026-01-01T00:00:00Z", "window": "30s"}
VERBS = ["get", "list"]


def metadata(name: str, **labels: str) -> dict[str, Any]:
    return {"name": name, "labels": labels}


def pod(name: str) -> dict[str, Any]:
    shown = {"metadata": {**metadata(name, app="web"), "namespace": "default"}, **TIMES}
    return {**shown, "containers": [{"name": "c", "usage": USAGE}]}


class MetricsServer(http.server.BaseHTTPRequestHandler):
    """Serves the usage of two nodes and two pods to the front proxy alone."""

    protocol_version = "HTTP/1.1"
    callers: set[str]

    def do_GET(self) -> None:
        peer = self.connection.getpeercert()
        if not peer:
            self.respond(401, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401})
            return
        self.callers.add(self.headers["X-Remote-User"])
        path = self.path.partition("?")[0]
        if path == ROOT:
            nodes = {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": VERBS}
            pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": VERBS}
            shown = {"groupVersion": "metrics.k8s.io/v1beta1", "resources": [nodes, pods]}
            self.respond(200, {"kind": "APIResourceList", "apiVersion": "v1", **shown})
        elif path == f"{ROOT}/nodes":
            items = [{"metadata": metadata(name), **TIMES, "usage": USAGE} for name in ("n1", "n2")]
            self.respond(200, {"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items})
        elif path in (f"{ROOT}/namespaces/default/pods", f"{ROOT}/pods"):
            items = [pod("a"), pod("b")]
            self.respond(200, {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items})
        else:
            self.respond(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def respond(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Cluster:
    """A server with a metrics server behind, used by kubectl."""

    def __init__(self, server: ApiProcess, callers: set[str]) -> None:
        self.server = server
        self.callers = callers

    def kubectl(self, *words: str, stdin: Any = None) -> str:
        command = (os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={self.server.kubeconfig}", *words)
        encoded = json.dumps(stdin) if stdin else ""
        done = subprocess.run(command, input=encoded, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def create(self, kind: str, version: str, name: str, **parts: Any) -> None:
        tree = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **parts.pop("metadata", {})}, **parts}
        self.kubectl("create", "--validate=false", "-f", "-", stdin=tree)

    def wait_until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, "nothing happened"
            time.sleep(0.1)


@pytest.fixture
def cluster(own_server: ApiProcess, tmp_path: Path) -> Iterator[Cluster]:
    authority = make_ca("metrics-ca")
    pair: KeyPair = issue(authority, "metrics", hosts=["metrics-server.kube-system.svc"])
    files = tmp_path / "metrics.crt", tmp_path / "metrics.key"
    pair.write(*files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    context.load_verify_locations(own_server.folder / "front-proxy-ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    handler = type("Handler", (MetricsServer,), {"callers": set()})
    metrics = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    metrics.socket = context.wrap_socket(metrics.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=metrics.serve_forever, daemon=True).start()
    found = Cluster(own_server, handler.callers)
    name = {"name": "metrics-server", "namespace": "kube-system"}
    spec = {"type": "ExternalName", "externalName": "localhost"}
    found.create("Service", "v1", name["name"], metadata={"namespace": name["namespace"]}, spec=spec)
    bundle = base64.b64encode(authority.certificate).decode()
    wanted: dict[str, Any] = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    reference = {**name, "port": metrics.server_port}
    api = f"{wanted['version']}.{wanted['group']}"
    found.create(
        "APIService", "apiregistration.k8s.io/v1", api, spec={**wanted, "service": reference, "caBundle": bundle}
    )
    found.kubectl("wait", "--for=condition=Available", f"apiservice/{api}", "--timeout=30s")
    found.wait_until(lambda: "metrics.k8s.io" in found.kubectl("api-versions"))
    yield found
    metrics.shutdown()
    metrics.server_close()


def test_kubectl_top(cluster: Cluster) -> None:
    for name in ("n1", "n2"):
        amounts = {"cpu": "2", "memory": "1Gi"}
        cluster.create("Node", "v1", name, status={"capacity": amounts, "allocatable": amounts})
    nodes = cluster.kubectl("top", "nodes").splitlines()
    assert [line.split() for line in nodes[1:]] == [
        ["n1", "200m", "10%", "64Mi", "6%"],
        ["n2", "200m", "10%", "64Mi", "6%"],
    ]
    assert cluster.kubectl("top", "pods").splitlines()[1].split() == ["a", "200m", "64Mi"]
    listed = cluster.kubectl("get", "apiservices", "v1beta1.metrics.k8s.io").splitlines()[1].split()
    assert listed[:3] == ["v1beta1.metrics.k8s.io", "kube-system/metrics-server", "True"]
    assert "PodMetrics" in cluster.kubectl("api-resources")
    assert {"system:kube-aggregator", "kubernetes-admin"} <= cluster.callers


def test_autoscaler_follows_pod_usage(cluster: Cluster) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    selector = {"matchLabels": {"app": "web"}}
    cluster.create("Deployment", "apps/v1", "web", spec={"replicas": 2, "selector": selector, "template": template})
    cluster.kubectl("patch", "deployment", "web", "--subresource=status", "-p", '{"status": {"replicas": 2}}')
    for name in ("a", "b"):
        cluster.create("Pod", "v1", name, metadata={"labels": {"app": "web"}}, spec=template["spec"])
        long_ago = "2025-01-01T00:00:00Z"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": long_ago}
        status = {"status": {"phase": "Running", "startTime": long_ago, "conditions": [ready]}}
        cluster.kubectl("patch", "pod", name, "--subresource=status", "-p", json.dumps(status))
    cluster.kubectl("autoscale", "deployment", "web", "--cpu-percent=100", "--max=9")
    manager = subprocess.Popen([
        sys.executable, "-m", "controller_manager", f"--kubeconfig={cluster.server.kubeconfig}", "--secure-port=0",
        "--controllers=horizontal-pod-autoscaler-controller", "--leader-elect=false",
        "--horizontal-pod-autoscaler-sync-period=1s",
    ])  # fmt: skip
    try:
        replicas = ("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
        cluster.wait_until(lambda: cluster.kubectl(*replicas) == "4")  # they use twice their target
    finally:
        manager.terminate()
        manager.wait(20)
