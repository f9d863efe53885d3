"""Command lines of existing control planes start the manager unchanged, except for paths."""

import json
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller_manager.common.serving.tls import issue, make_ca
from tests.e2e.conftest import ApiProcess

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("cluster-up"), pytest.mark.needs("kubectl")]

# kubeadm 1.33 with a range for pods.
KUBEADM = """
--allocate-node-cidrs=true
--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf
--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf
--bind-address=127.0.0.1
--client-ca-file=/etc/kubernetes/pki/ca.crt
--cluster-cidr=10.244.0.0/16
--cluster-name=kubernetes
--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt
--cluster-signing-key-file=/etc/kubernetes/pki/ca.key
--controllers=*,bootstrapsigner,tokencleaner
--kubeconfig=/etc/kubernetes/controller-manager.conf
--leader-elect=true
--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
--root-ca-file=/etc/kubernetes/pki/ca.crt
--service-account-private-key-file=/etc/kubernetes/pki/sa.key
--service-cluster-ip-range=10.96.0.0/16
--use-service-account-credentials=true
"""
# kind adds one flag to those of kubeadm.
KIND = KUBEADM.replace("--kubeconfig=", "--enable-hostpath-provisioner=true\n--kubeconfig=")
# Flags that Kubespray and similar tools add through kubeadm's extraArgs.
TUNED = f"""{KUBEADM}
--configure-cloud-routes=false
--feature-gates=RotateKubeletServerCertificate=true,SidecarContainers=true,HPAScaleToZero=true
--flex-volume-plugin-dir=/var/lib/kubelet/volumeplugins
--leader-elect-lease-duration=15s
--leader-elect-renew-deadline=10s
--node-cidr-mask-size=24
--node-monitor-grace-period=40s
--node-monitor-period=5s
--profiling=false
--terminated-pod-gc-threshold=500
--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
--tls-min-version=VersionTLS12
--v=2
"""
# kOps with an external cloud provider.
KOPS = """
--allocate-node-cidrs=true
--attach-detach-reconcile-sync-period=1m0s
--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf
--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf
--cloud-provider=external
--cluster-cidr=100.96.0.0/11
--cluster-name=minimal.example.com
--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt
--cluster-signing-key-file=/etc/kubernetes/pki/ca.key
--configure-cloud-routes=false
--flex-volume-plugin-dir=/var/lib/kubelet/volumeplugins/
--kubeconfig=/etc/kubernetes/controller-manager.conf
--leader-elect=true
--root-ca-file=/etc/kubernetes/pki/ca.crt
--service-account-private-key-file=/etc/kubernetes/pki/sa.key
--tls-cert-file=/etc/kubernetes/pki/server.crt
--tls-private-key-file=/etc/kubernetes/pki/server.key
--use-service-account-credentials=true
--v=2
"""
# k3s, which signs each kind of certificate with its own key.
K3S = """
--allocate-node-cidrs=true
--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf
--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf
--bind-address=127.0.0.1
--cluster-cidr=10.42.0.0/16
--cluster-signing-kube-apiserver-client-cert-file=/etc/kubernetes/pki/ca.crt
--cluster-signing-kube-apiserver-client-key-file=/etc/kubernetes/pki/ca.key
--cluster-signing-kubelet-client-cert-file=/etc/kubernetes/pki/ca.crt
--cluster-signing-kubelet-client-key-file=/etc/kubernetes/pki/ca.key
--cluster-signing-kubelet-serving-cert-file=/etc/kubernetes/pki/ca.crt
--cluster-signing-kubelet-serving-key-file=/etc/kubernetes/pki/ca.key
--cluster-signing-legacy-unknown-cert-file=/etc/kubernetes/pki/ca.crt
--cluster-signing-legacy-unknown-key-file=/etc/kubernetes/pki/ca.key
--configure-cloud-routes=false
--controllers=*,tokencleaner,-service,-route,-cloud-node-lifecycle
--kubeconfig=/etc/kubernetes/controller-manager.conf
--profiling=false
--root-ca-file=/etc/kubernetes/pki/ca.crt
--service-account-private-key-file=/etc/kubernetes/pki/sa.key
--service-cluster-ip-range=10.43.0.0/16
--terminated-pod-gc-threshold=1000
--tls-cert-file=/etc/kubernetes/pki/server.crt
--tls-private-key-file=/etc/kubernetes/pki/server.key
--use-service-account-credentials=true
"""


class Manager:
    """A manager process with a command line, on its own port, and its log."""

    def __init__(self, folder: Path, line: str, port: int) -> None:
        self.port = port
        self.log = folder / "manager.log"
        argv = line.replace("/etc/kubernetes", str(folder)).split()
        command = [sys.executable, "-m", "controller_manager", *argv, f"--secure-port={port}"]
        with self.log.open("w") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def page(self, path: str) -> str:
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        with urllib.request.urlopen(f"https://127.0.0.1:{self.port}{path}", context=anybody, timeout=30) as answer:
            return answer.read().decode()

    def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(20)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a control plane machine in /etc/kubernetes/pki."""
    folder = tmp_path_factory.mktemp("machine") / "pki"
    folder.mkdir()
    ca = make_ca("kubernetes")
    ca.write(folder / "ca.crt", folder / "ca.key")
    make_ca("front-proxy-ca").write(folder / "front-proxy-ca.crt", folder / "front-proxy-ca.key")
    issue(ca, "service-accounts").write(folder / "sa.crt", folder / "sa.key")
    shown = issue(ca, "kube-controller-manager", hosts=("localhost", "127.0.0.1"))
    shown.write(folder / "server.crt", folder / "server.key")
    return folder


@pytest.fixture
def machine(tmp_path: Path, pki: Path, control_plane: ApiProcess) -> Path:
    """The content of /etc/kubernetes."""
    (tmp_path / "pki").symlink_to(pki)
    (tmp_path / "controller-manager.conf").write_bytes(control_plane.kubeconfig.read_bytes())
    return tmp_path


@pytest.fixture
def start(machine: Path, free_port: Callable[[], int]) -> Iterator[Callable[[str], Manager]]:
    """Start the manager on that machine."""
    started: list[Manager] = []

    def run(line: str) -> Manager:
        started.append(Manager(machine, line, free_port()))
        return started[-1]

    yield run
    for manager in started:
        manager.child.kill()
        manager.child.wait()


def eventually(holds: Callable[[], object], manager: Manager) -> None:
    """Wait until a condition holds while the process lives; an exception counts as not yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        assert manager.child.poll() is None, manager.log.read_text()
        assert time.monotonic() < deadline, manager.log.read_text()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("line", "without_effect"),
    [
        (KUBEADM, set()),
        (KIND, set()),
        (TUNED, {"RotateKubeletServerCertificate"}),
        (KOPS, set()),
        (K3S, set()),
    ],
    ids=["kubeadm", "kind", "tuned", "kops", "k3s"],
)
def test_existing_command_line_starts_the_manager(line, without_effect, start, control_plane, request):
    manager = start(line)
    eventually(lambda: manager.page("/readyz") == "ok", manager)
    assert manager.page("/healthz") == "ok"

    namespace = f"shop-{request.node.callspec.id}"
    api(control_plane, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    api(control_plane, f"/api/v1/namespaces/{namespace}/services", service)
    eventually(lambda: api(control_plane, f"/api/v1/namespaces/{namespace}/endpoints")["items"], manager)

    assert manager.stop() == 0, manager.log.read_text()
    warnings = [text for text in manager.log.read_text().splitlines() if re.match("W|.*warning", text)]
    for name in without_effect:
        assert [text for text in warnings if name in text], (name, warnings)
    flags = {name for text in warnings for name in re.findall(r"(--[a-z-]+) without effect", text)}
    assert flags == {name for name in without_effect if name.startswith("--")}


def api(server, path: str, body: dict | None = None) -> dict:
    """Call the API server as its administrator."""
    command = ["kubectl", f"--kubeconfig={server.kubeconfig}"]
    command += ["create", f"--raw={path}", "-f", "-"] if body is not None else ["get", f"--raw={path}"]
    done = subprocess.run(command, input=json.dumps(body or {}), capture_output=True, text=True, check=True, timeout=20)
    return json.loads(done.stdout)
