"""`cluster-up` as a user runs it: real processes, real signals, a real kubectl."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from controller_manager.common.serving.tls import KeyPair, issue
from tests.e2e.conftest import JOE, ClusterUp, free_port, running

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl")]

SOON = 40.0  # seconds until an expected event, on a busy machine too
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def terms(lease: int, renew: int) -> tuple[str, ...]:
    """Lease duration and renew deadline of a manager, in seconds."""
    return (
        f"--manager-arg=--leader-elect-lease-duration={lease}s",
        f"--manager-arg=--leader-elect-renew-deadline={renew}s",
        "--manager-arg=--leader-elect-retry-period=500ms",
    )


def wait_for(holds: Callable[[], bool], seconds: float = SOON) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds
        time.sleep(0.05)


def make_service(up: ClusterUp, name: str) -> None:
    spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
    tree = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    up.kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(tree))


def has_endpoints(up: ClusterUp, name: str) -> bool:
    return name in up.kubectl("get", "endpoints", "-o", "name").replace("endpoints/", "").split()


def test_service_endpoints_and_namespace_deletion(cluster: ClusterUp) -> None:
    cluster.kubectl("create", "namespace", "shop")
    make_service(cluster, "web")
    cluster.kubectl("run", "web-1", "--image=example.org/web:1", "--labels=app=web")
    ready = {
        "status": {
            "phase": "Running",
            "podIP": "10.1.0.7",
            "podIPs": [{"ip": "10.1.0.7"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    }
    cluster.kubectl("patch", "pod", "web-1", "--subresource=status", "--type=merge", "-p", json.dumps(ready))
    wait_for(lambda: "10.1.0.7:80" in cluster.kubectl("get", "endpoints", "web"))
    ready["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    cluster.kubectl("patch", "pod", "web-1", "--subresource=status", "--type=merge", "-p", json.dumps(ready))
    moved = "jsonpath={.subsets[0].notReadyAddresses[0].ip}"
    wait_for(lambda: cluster.kubectl("get", "endpoints", "web", "-o", moved) == "10.1.0.7")
    cluster.kubectl("run", "sold", "-n", "shop", "--image=example.org/shop:1")
    cluster.kubectl("delete", "namespace", "shop", "--timeout=20s")
    assert "shop" not in cluster.kubectl("get", "namespaces", "-o", "name")


def test_pods_are_scheduled(cluster: ClusterUp) -> None:
    ready = {"type": "Ready", "status": "True"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "machine", "labels": {"kubernetes.io/hostname": "machine"}},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}, "conditions": [ready]},
    }
    cluster.kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(node))
    cluster.kubectl("run", "planned", "--image=example.org/web:1")
    wait_for(lambda: cluster.kubectl("get", "pod", "planned", "-o", "jsonpath={.spec.nodeName}") == "machine")
    cluster.kubectl("delete", "pod", "planned", "--force", "--grace-period=0")
    cluster.kubectl("delete", "node", "machine")


def test_every_namespace_has_the_ca_and_certificates_are_signed(cluster: ClusterUp) -> None:
    cluster.kubectl("create", "namespace", "known")
    authority = (cluster.folder / "ca.crt").read_text()
    kept = (
        "get",
        "configmap",
        "kube-root-ca.crt",
        "-n",
        "known",
        "--ignore-not-found",
        "-o",
        r"jsonpath={.data.ca\.crt}",
    )
    wait_for(lambda: cluster.kubectl(*kept) == authority)
    wait_for(lambda: "default" in cluster.kubectl("get", "serviceaccounts", "-n", "known", "-o", "name"))
    command = (Path(f"/proc/{cluster.pid('manager-0')}/cmdline")).read_text().split("\0")
    signing = dict(one.split("=") for one in command if one.startswith("--cluster-signing-"))
    assert {Path(file).name for flag, file in signing.items() if "client" in flag} == {"client-ca.crt", "client-ca.key"}
    assert {Path(file).name for flag, file in signing.items() if "client" not in flag} == {
        "signing-ca.crt",
        "signing-ca.key",
    }


def test_standby_takes_over(tmp_path: Path) -> None:
    with running(tmp_path / "cluster", *terms(lease=4, renew=3)) as up:
        first = up.leader()
        os.kill(up.pid(first), signal.SIGKILL)
        up.wait_for_output(f"{first} was killed by SIGKILL")
        make_service(up, "a")
        wait_for(lambda: has_endpoints(up, "a"))
        up.wait_for_output(f"{first} is ready")
        assert up.stop() == 0
    stopped = [line for line in up.said if line.endswith(" stopped")]
    assert sorted(stopped[:2]) == ["manager-0 stopped", "manager-1 stopped"]
    assert stopped[2:] == ["apiserver stopped"]


def test_stopped_leader_hands_over_and_restart_keeps_state(tmp_path: Path) -> None:
    with running(tmp_path / "cluster", *terms(lease=100, renew=90)) as up:
        first = up.leader()
        os.kill(up.pid(first), signal.SIGTERM)
        up.wait_for_output(f"{first} ended with exit status 0")
        make_service(up, "kept")
        wait_for(lambda: has_endpoints(up, "kept"))  # long before the lease would expire
        assert up.stop() == 0
    (page,) = (line for line in up.said if "/ui" in line)
    assert re.fullmatch(r"  https://127\.0\.0\.1:\d+/ui  .*", page)  # a token is printed only on a terminal
    with running(up.folder, "--managers=1", "--api-port=0", "--manager-port=0") as again:
        assert "kept" in again.kubectl("get", "services", "-o", "name")
        ports = {int(found[1]) for line in again.said if (found := re.search(r"ready on .*:(\d+)", line))}
    assert len(ports) == 2
    assert 0 not in ports


def test_failed_processes_are_restarted(tmp_path: Path) -> None:
    """The last manager, then the API server; stored objects remain."""
    with running(tmp_path / "cluster", "--managers=1", *terms(lease=2, renew=1)) as up:
        for name in ("manager-0", "apiserver"):
            os.kill(up.pid(name), signal.SIGKILL)
            up.wait_for_output(f"{name} was killed by SIGKILL; its last log lines:")
            up.wait_for_output(f"{name} is started again in 1 s")
            up.wait_for_output(f"{name} is ready")
            make_service(up, f"after-{name}")
            wait_for(lambda name=name: has_endpoints(up, f"after-{name}"))
        assert "after-manager-0" in up.kubectl("get", "services", "-o", "name")
        assert up.stop() == 0


def test_exit_of_api_server_ends_cluster_up(tmp_path: Path) -> None:
    with running(tmp_path / "cluster", "--managers=0") as up:
        os.kill(up.pid("apiserver"), signal.SIGTERM)
        up.wait_for_output("apiserver is not started again")
        assert up.process.stdout is not None
        up.process.stdout.read()
        assert up.process.wait(30) == 1


def test_busy_port_is_one_error_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = (
            sys.executable,
            "-m",
            "controller_manager.cluster_up",
            f"--data-dir={tmp_path}",
            f"--api-port={port}",
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    who = rf"process {os.getpid()} \(.*python.*\)"
    assert re.fullmatch(rf"cluster-up: --api-port: port {port} on 127.0.0.1 is in use by {who}; .*\n", done.stderr)
    assert [file.name for file in tmp_path.iterdir()] == ["cluster-up.lock"]


def test_unusable_folder_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={tmp_path / 'file' / 'x'}")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert re.fullmatch(r"cluster-up: --data-dir: .* is not a writable folder: .*\n", done.stderr)


def test_watch_without_terminal_is_an_error(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={tmp_path / 'data'}", "--watch")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert re.fullmatch(r"cluster-up: --watch: needs a terminal.*\n", done.stderr)
    assert not (tmp_path / "data").exists()


def test_server_start_failure_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={tmp_path}")
    ports = (f"--api-port={free_port()}", f"--manager-port={free_port()}")
    for wrong, before in (("--no-such-flag", "--nor-this"), ("--nor-this", "--no-such-flag")):
        again = (*command, *ports, f"--apiserver-arg={wrong}")
        done = subprocess.run(again, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 1
        assert wrong in done.stderr
        assert before not in done.stderr, "that was said in an earlier run"


def test_managers_write_json_to_their_api_server(cluster: ClusterUp) -> None:
    flags = ("--insecure-skip-tls-verify", f"--server={cluster.manager_url}")
    page = cluster.kubectl(*flags, "get", "--raw=/configz")
    chosen = {name: value for group in json.loads(page).values() for name, value in group.items()}
    assert (chosen["cluster-api-qps"], chosen["adaptive-api-throttling"]) == (-1, True)
    assert chosen["cluster-api-content-type"] == "application/json"


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_killed_launcher_ends_its_children(tmp_path: Path) -> None:
    with running(tmp_path / "cluster", "--managers=1") as up:
        children = [up.pid(name) for name in ("apiserver", "manager-0")]
        assert all(map(is_running, children))
        up.process.kill()
        up.process.communicate(timeout=30)
        wait_for(lambda: not any(map(is_running, children)))


def test_second_cluster_up_on_same_folder_changes_nothing(cluster: ClusterUp) -> None:
    before = {
        file: file.read_bytes() for file in cluster.folder.rglob("*") if file.suffix in (".kubeconfig", ".pem", ".crt")
    }
    command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={cluster.folder}")
    ports = (f"--api-port={free_port()}", f"--manager-port={free_port()}")
    done = subprocess.run((*command, *ports), capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    shown = rf"cluster-up: --data-dir: .* is in use by another cluster-up \(process {cluster.process.pid}\); .*\n"
    assert re.fullmatch(shown, done.stderr)
    assert {file: file.read_bytes() for file in before} == before
    assert "default" in cluster.kubectl("get", "namespaces", "-o", "name")


def test_start_logs_no_warnings(cluster: ClusterUp) -> None:
    assert cluster.logged_at_start
    warnings = [line for line in cluster.logged_at_start if line[:1] in "WE"]
    assert [line for line in warnings if 'logger="watchdog"' not in line] == []  # the machine may be busy


ATTACKS = {
    "legacy": ("kubernetes.io/legacy-unknown", "/O=system:masters/CN=eve", "client auth"),
    "client": ("kubernetes.io/kube-apiserver-client", "/O=dev/O=system:masters/CN=eve", "client auth"),
    "node": (
        "kubernetes.io/kube-apiserver-client-kubelet",
        "/O=system:nodes/O=system:masters/CN=system:node:eve",
        "digital signature, client auth",
    ),
    "serving": (
        "kubernetes.io/kubelet-serving",
        "/O=system:masters/CN=system:node:eve",
        "digital signature, server auth",
    ),
}


ALL_OF_REQUESTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "all-of-requests"},
    "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["*"]}],
}


@pytest.fixture
def as_joe(cluster: ClusterUp) -> Kubectl:
    """kubectl with only Joe's token as credentials."""
    server = f"--server={cluster.url}", f"--certificate-authority={cluster.folder / 'ca.crt'}"
    program = os.environ.get("KUBECTL", "kubectl")

    def kubectl(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = (program, f"--kubeconfig={os.devnull}", *server, *words)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=30)

    return kubectl


def test_signing_permissions_do_not_make_an_admin(cluster: ClusterUp, as_joe: Kubectl, tmp_path: Path) -> None:
    token, role = f"--token={JOE}", tmp_path / "role.json"
    role.write_text(json.dumps(ALL_OF_REQUESTS))
    cluster.kubectl("apply", "-f", str(role))
    cluster.kubectl("create", "clusterrolebinding", "joe", "--clusterrole=all-of-requests", "--user=joe")
    for name, (signer, subject, usages) in ATTACKS.items():
        made = tmp_path / f"{name}.csr"
        new = ("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / f"{name}.key", "-out", made)
        names = ("-addext", "subjectAltName=DNS:kubernetes.default.svc") if name == "serving" else ()
        subprocess.run(("openssl", *new, "-subj", subject, *names), check=True, capture_output=True)
        spec = {"request": b64encode(made.read_bytes()).decode(), "signerName": signer, "usages": usages.split(", ")}
        tree = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
        tree |= {"metadata": {"name": name}, "spec": spec}
        done = as_joe("create", "--validate=false", "-f", "-", token, stdin=json.dumps(tree))
        assert (done.returncode == 0) == (name in ("node", "serving")), done.stderr
        as_joe("certificate", "approve", name, token)
    requests = (
        "get",
        "csr",
        "-o",
        "jsonpath={range .items[*]}{.status.conditions[*].reason} {.status.certificate};{end}",
    )
    wait_for(lambda: cluster.kubectl(*requests).count("SignerValidationFailure ;") == len(("node", "serving")))


@pytest.mark.parametrize("authority", ["ca", "front-proxy-ca", "signing-ca"])
def test_only_the_client_ca_authenticates_clients(
    cluster: ClusterUp, as_joe: Kubectl, tmp_path: Path, authority: str
) -> None:
    issued = tmp_path / "eve.crt", tmp_path / "eve.key"
    pair = KeyPair(
        (cluster.folder / f"{authority}.crt").read_bytes(), (cluster.folder / f"{authority}.key").read_bytes()
    )
    issue(pair, "eve", ["system:masters"], client=True).write(*issued)
    shown = f"--client-certificate={issued[0]}", f"--client-key={issued[1]}"
    done = as_joe("get", "namespaces", *shown)
    assert done.returncode == 1
    assert "unknown certificate authority" in done.stderr
    page = ("curl", "-ks", "--cert", issued[0], "--key", issued[1], "-w", "%{http_code}", "-o", os.devnull)
    seen = subprocess.run((*page, f"{cluster.manager_url}/metrics"), capture_output=True, text=True, check=False)
    assert seen.stdout in ("000", "401", "403")
