"""One API server process on a free port for all end-to-end tests of a worker, and the real kubectl as its client."""

import base64
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFESTS = Path(__file__).parent.parent / "manifests"
SHORT_LIVED = {"GOGC": "off"}  # kubectl ends before garbage collection pays off: it takes a fifth of its time
LEASE = "cluster-controller-manager"
READY = re.compile(r'"ready" .*url="(\S+)"')


class ApiProcess:
    """An `apiserver-stub` process with its own data folder; a restart keeps its port."""

    PROGRAM = ("-m", "apiserver_stub")

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        self.url = ""
        self.log = folder.with_suffix(".log")
        self.start()

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.kubeconfig"

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1]) if self.url else 0

    def start(self) -> None:
        """Start the process and wait for the line with its address."""
        command = [sys.executable, *self.PROGRAM, f"--data-dir={self.folder}", f"--secure-port={self.port}"]
        command.append("--service-cluster-ip-range=10.0.0.0/16")
        with self.log.open("a") as log:
            self.child = subprocess.Popen(
                [*command, "--bind-address=127.0.0.1", *self.flags], stderr=subprocess.PIPE, stdout=log, text=True
            )
            assert self.child.stderr is not None
            for line in self.child.stderr:
                log.write(line)
                if found := READY.search(line):
                    self.url = found[1]
                    break
            else:
                code = self.child.wait(20)
                raise AssertionError(f"it ended with {code}: {self.log.read_text()}")

    def kill(self) -> None:
        """Kill the process."""
        self.child.kill()
        self._wait()

    def stop(self) -> str:
        """Stop the process cleanly; return its log."""
        self.child.send_signal(signal.SIGTERM)
        said = self._wait()
        assert self.child.returncode == 0, said
        return self.log.read_text() + said

    def _wait(self) -> str:
        said = self.child.communicate(timeout=20)[1]
        with self.log.open("a") as log:
            log.write(said)
        return said


class Admin:
    """The administrator of a server, without kubectl, for steps that are not under test."""

    def __init__(self, server: ApiProcess) -> None:
        user = yaml.safe_load(server.kubeconfig.read_text())["users"][0]["user"]
        files = [server.folder.with_suffix(f".{part}") for part in ("crt", "key")]
        for file, part in zip(files, ("client-certificate-data", "client-key-data"), strict=True):
            file.write_bytes(base64.b64decode(user[part]))
        context = ssl.create_default_context(cafile=str(server.folder / "ca.crt"))
        context.load_cert_chain(*files)
        self._connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=30, context=context)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer of the server, which must be a success."""
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status < 300, found
        return found


def free_port() -> int:
    """A free port whose successor is also free, outside the range of client connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, socket.socket() as following, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            following.bind(("127.0.0.1", port + 1))
            return port


JOE = "joe-token"


class ClusterUp:
    """A running `cluster-up`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        api, manager = free_port(), free_port()
        self.url, self.manager_url = f"https://127.0.0.1:{api}", f"https://127.0.0.1:{manager}"
        ports = (f"--api-port={api}", f"--manager-port={manager}")
        if not any(flag.startswith("--nodes") for flag in flags):  # most tests set pod statuses themselves
            flags = ("--nodes=0", *flags)
        command = (sys.executable, "-m", "controller_manager.cluster_up", f"--data-dir={folder}", *ports, *flags)
        self.folder = folder
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said: list[str] = []
        self.logged_at_start: list[str] = []

    def wait_for_output(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if text in line:
                return
        raise AssertionError("\n".join(self.said))

    def kubectl(self, *words: str, stdin: str = "") -> str:
        done = self.ask(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """The output of kubectl, which may fail."""
        command = (os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={self.folder / 'admin.kubeconfig'}", *words)
        environment = {**os.environ, **SHORT_LIVED}
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=60, env=environment
        )

    def pid(self, name: str) -> int:
        """The pid of one child, by its place in the command line."""
        marker = {"apiserver": "apiserver_stub"}.get(name, f"{name}.kubeconfig")
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes().decode()
            except OSError:
                continue
            if str(self.folder) in line and marker in line and "cluster_up" not in line:
                return int(entry.parent.name)
        raise AssertionError(f"{name} does not run")

    def leader(self) -> str:
        """The manager that reports to be the leader."""
        logs = {name: (self.folder / f"{name}.log").read_text() for name in ("manager-0", "manager-1")}
        holder = self.kubectl("get", "lease", LEASE, "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}")
        return next(name for name, log in logs.items() if f'me="{holder}"' in log)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=30)
        self.said += out.splitlines()
        return self.process.returncode


@contextmanager
def running(folder: Path, *flags: str) -> Iterator[ClusterUp]:
    """A ready cluster, stopped at the end."""
    cluster = ClusterUp(folder, *flags)
    try:
        cluster.wait_for_output("ready after")
        cluster.logged_at_start = [line for log in folder.glob("*.log") for line in log.read_text().splitlines()]
        yield cluster
    finally:
        if cluster.process.poll() is None:
            cluster.stop()


@pytest.fixture(scope="session", name="free_port")
def finds_free_port() -> Callable[[], int]:
    """Finds a free port."""
    return free_port


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUp]:
    """A cluster of two managers whose controllers use their accounts, and a user with only a token; tests must not stop
    it or its processes.
    """
    folder = tmp_path_factory.mktemp("up")
    (folder / "tokens").write_text(f"{JOE},joe,1\n")
    tokens = f"--apiserver-arg=--token-auth-file={folder / 'tokens'}"
    accounts = "--manager-arg=--use-service-account-credentials=true"
    with running(folder / "cluster", tokens, accounts, "--manager-arg=-v=4") as started:
        yield started
        assert started.stop() == 0


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """The process that most tests share; at the end it must stop cleanly, without internal errors."""
    process = ApiProcess(tmp_path_factory.mktemp("cluster") / "data")
    yield process
    assert "a request failed" not in process.stop()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """A process for tests that start managers, which change shared objects; such tests run one after the other, by
    file.
    """
    process = ApiProcess(tmp_path_factory.mktemp("control-plane") / "data")
    yield process
    assert "a request failed" not in process.stop()


@pytest.fixture(scope="session")
def admin(server: ApiProcess) -> Admin:
    """The admin of the shared server."""
    return Admin(server)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ApiProcess]:
    """A process that the test may kill and start again."""
    process = ApiProcess(tmp_path / "data")
    yield process
    assert "a request failed" not in process.stop()


@pytest.fixture(scope="session")
def launch(server: ApiProcess) -> Callable[..., "subprocess.Popen[str]"]:
    """Start kubectl as the administrator of the shared server."""
    program = shutil.which(os.environ.get("KUBECTL", "kubectl"))
    assert program, "these tests need kubectl"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(server.folder.parent),
        "KUBECONFIG": str(server.kubeconfig),
        "KUBECTL_APPLYSET": "true",
        **SHORT_LIVED,
    }

    def start(*arguments: str, editor: str = "false") -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        command = ["kubectl", *arguments]  # kubectl names its field managers after this name
        shown = {**environment, "KUBE_EDITOR": editor}
        return subprocess.Popen(command, executable=program, env=shown, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    return start


@pytest.fixture(scope="session")
def run(launch: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., tuple[int, str, str]]:
    """Run kubectl to its end: exit code, output, errors; `stdin` is an object for `-f -`."""

    def to_the_end(*arguments: str, stdin: Any = None, editor: str = "false") -> tuple[int, str, str]:
        child = launch(*arguments, editor=editor)
        out, err = child.communicate(None if stdin is None else json.dumps(stdin), timeout=30)
        return child.returncode, out, err

    return to_the_end


@pytest.fixture(scope="session")
def kubectl(run: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Run kubectl, which must succeed; return its output."""

    def succeed(*arguments: str, **more: Any) -> str:
        code, out, err = run(*arguments, **more)
        assert code == 0, f"kubectl {' '.join(arguments)}: {err}"
        return out.strip()

    return succeed


@pytest.fixture(scope="session")
def minor(kubectl: Callable[..., str]) -> int:
    """The minor version of kubectl, on which features and messages depend."""
    return int(json.loads(kubectl("version", "--client", "-o", "json"))["clientVersion"]["minor"].rstrip("+"))


@pytest.fixture(scope="session")
def kubectl_error(run: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Run kubectl, which must fail with exit code 1; return its error."""

    def fail(*arguments: str, **more: Any) -> str:
        code, out, err = run(*arguments, **more)
        assert code == 1, f"kubectl {' '.join(arguments)}: exit code {code}: {out}{err}"
        return err.strip()

    return fail


@pytest.fixture(autouse=True)
def skip_by_version(request: pytest.FixtureRequest) -> None:
    """`@pytest.mark.since(32)` needs kubectl 1.32 or later. With an older one the test is skipped if that version was
    chosen, and fails otherwise.
    """
    for needs in request.node.iter_markers("since"):
        if request.getfixturevalue("minor") < needs.args[0]:
            why = f"needs kubectl 1.{needs.args[0]}"
            if "KUBECTL" not in os.environ:
                pytest.fail(f"{why} or later; KUBECTL names another")
            pytest.skip(why)


@pytest.fixture(scope="session")
def manifests(kubectl: Callable[..., str], admin: Admin, documents: Any) -> dict[Path, str]:
    """Every manifest, applied once: kubectl's output; nodes are ready, without the taint of new nodes."""
    files = sorted(MANIFESTS.glob("*.yaml"))
    said = {file: kubectl("apply", "--validate=false", "-f", str(file)) for file in files}
    for name in [one["metadata"]["name"] for file in files for one in documents(file) if one["kind"] == "Node"]:
        node = admin.ask("GET", f"/api/v1/nodes/{name}")
        node["spec"]["taints"] = [one for one in node["spec"].get("taints", ()) if not one["key"].endswith("not-ready")]
        admin.ask("PUT", f"/api/v1/nodes/{name}", node)
    return said


@pytest.fixture(scope="session")
def counter() -> Iterator[int]:
    """Unique numbers."""
    return count(1)


@pytest.fixture
def namespace(admin: Admin, request: pytest.FixtureRequest, counter: Iterator[int]) -> str:
    """A namespace of the test."""
    title = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    name = f"{title[:50].rstrip('-')}-{next(counter)}"
    admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture(scope="session")
def documents() -> Callable[[Path], list[dict[str, Any]]]:
    """The objects of a manifest, including those in a List."""

    def read(file: Path) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for document in yaml.safe_load_all(file.read_text()):
            found += document["items"] if document["kind"] == "List" else [document]
        return found

    return read
