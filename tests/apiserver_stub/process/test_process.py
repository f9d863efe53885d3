"""The real process with the real kubectl: start, requests, persistence and shutdown."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.serving.tls import issue, make_ca

pytestmark = pytest.mark.e2e

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
PEOPLE = 's3cret,jane,42,"dev"\n'

Kubectl = Callable[..., str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Process:
    """One `apiserver-stub` process in a folder."""

    def __init__(self, folder: Path, *arguments: str, stdout: Any = None) -> None:
        self.folder, self.port, self.log = folder, free_port(), ""
        command = [sys.executable, "-m", "apiserver_stub", f"--data-dir={folder}", f"--secure-port={self.port}"]
        command += ["--bind-address=127.0.0.1", *arguments]
        self.child = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE)

    def wait_ready(self) -> None:
        for _ in range(1200):
            assert self.child.poll() is None, self.child.communicate()[1].decode()
            if self.get("/readyz")[0] == 200:
                return
            time.sleep(0.05)
        pytest.fail("the server did not become ready")

    def get(
        self, path: str, body: bytes | None = None, context: ssl.SSLContext | None = None, **headers: str
    ) -> tuple[int, bytes]:
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", body, headers)
        try:
            with urllib.request.urlopen(request, context=context or trusting(), timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read()
        except OSError:
            return 0, b""

    def kubectl(self, *arguments: str, stdin: Any = None, editor: str = "false") -> str:
        program = shutil.which("kubectl")
        assert program, "kubectl is not installed"
        environment = {
            "KUBECONFIG": str(self.folder / "admin.kubeconfig"),
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "KUBE_EDITOR": editor,
        }
        text = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(
            [program, *arguments], input=text, env=environment, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.child.send_signal(how)
        self.log = self.child.communicate(timeout=20)[1].decode()
        return self.child.returncode


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A process that no test stops."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "tokens.csv").write_text(PEOPLE)
    process = Process(folder / "data", f"--token-auth-file={folder / 'tokens.csv'}")
    process.wait_ready()
    yield process
    assert process.stop(signal.SIGINT) == 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start processes that the test may stop, any number of times."""
    started: list[Process] = []

    def ready(*arguments: str) -> Process:
        started.append(Process(tmp_path / "data", *arguments))
        started[-1].wait_ready()
        return started[-1]

    yield ready
    for process in started:
        if process.child.poll() is None:
            process.stop(signal.SIGKILL)


@pytest.mark.needs("kubectl")
def test_kubectl_works_with_the_written_kubeconfig(server: Process) -> None:
    assert server.kubectl("apply", "-f", "-", stdin=CONFIG_MAP).strip() == "configmap/a created"
    dry = server.kubectl("apply", "--dry-run=server", "-f", "-", stdin={**CONFIG_MAP, "data": {"k": "w"}})
    assert dry.strip() == "configmap/a configured (server dry run)"
    assert server.kubectl("get", "configmap", "a", "-o", "jsonpath={.data.k}") == "v"
    assert "kube-system" in server.kubectl("get", "namespaces")
    assert "kubernetes-admin" in server.kubectl("auth", "whoami")
    assert server.kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "*.*" in server.kubectl("auth", "can-i", "--list")
    assert "v1.36" in server.kubectl("version")
    assert "deployments" in server.kubectl("api-resources")
    assert server.kubectl("get", "--raw", "/readyz") == "ok"


@pytest.mark.needs("kubectl")
def test_kubectl_edit_changes_an_object(server: Process, tmp_path: Path) -> None:
    server.kubectl("create", "configmap", "edited", "--from-literal=k=v")
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/k: v/k: w/' \"$1\"\n")
    editor.chmod(0o755)
    assert server.kubectl("edit", "configmap", "edited", editor=str(editor)).strip() == "configmap/edited edited"
    assert server.kubectl("get", "configmap", "edited", "-o", "jsonpath={.data.k}") == "w"


def test_anonymous_users_see_only_health_and_version(server: Process) -> None:
    assert server.get("/livez") == (200, b"ok")
    assert server.get("/version")[0] == 200
    assert server.get("/version", Authorization="Bearer forged")[0] == 401
    assert server.get("/api/v1/namespaces")[0] == 401
    assert server.get("/api/v1/namespaces", Authorization="Bearer forged")[0] == 401
    assert server.get("/api", Authorization="Bearer s3cret")[0] == 200


@pytest.mark.needs("kubectl")
def test_kill_loses_nothing_and_signal_stops_cleanly(start: Callable[..., Process]) -> None:
    server = start()
    server.kubectl("apply", "-f", "-", stdin=CONFIG_MAP)
    uid = server.kubectl("get", "configmap", "a", "-o", "jsonpath={.metadata.uid}")
    server.stop(signal.SIGKILL)
    again = start()
    assert again.kubectl("get", "configmap", "a", "-o", "jsonpath={.metadata.uid}") == uid
    assert again.stop(signal.SIGTERM) == 0


def test_own_certificates_limits_and_json_log_work(start: Callable[..., Process], tmp_path: Path) -> None:
    ours, theirs = make_ca("ours"), make_ca("theirs")
    names = ("ca", "server", "key", "theirs", "jane", "jane-key")
    ca, server, key, their_ca, jane, jane_key = (tmp_path / name for name in names)
    ca.write_bytes(ours.certificate)
    their_ca.write_bytes(theirs.certificate)
    issue(ours, "server", hosts=["127.0.0.1"]).write(server, key)
    issue(theirs, "jane", ["dev"], client=True).write(jane, jane_key)
    process = start(
        *(f"--tls-cert-file={server}", f"--tls-private-key-file={key}", f"--client-ca-file={their_ca}"),
        *("--storage-backend=memory", "--max-request-bytes=2Ki", f"--cert-dir={tmp_path / 'certs'}"),
        *("--logging-format=json", "-v=4"),
    )
    context = ssl.create_default_context(cafile=str(ca))
    assert process.get("/api", context=context)[0] == 401
    context.load_cert_chain(jane, jane_key)
    assert process.get("/version", context=context)[0] == 200
    assert process.get("/api/v1/namespaces", b" " * 2049, context)[0] == 413
    assert (tmp_path / "certs" / "admin.kubeconfig").exists()
    assert process.stop() == 0
    answer = [json.loads(line) for line in process.log.splitlines()]
    assert ("'/version'", 200) in [(line["path"], line["status"]) for line in answer if line["msg"] == "answered"]


@pytest.mark.needs("kubectl")
def test_readiness_fails_during_shutdown_delay(start: Callable[..., Process]) -> None:
    process = start("--storage-backend=memory", "--shutdown-delay-duration=3s")
    process.child.send_signal(signal.SIGTERM)
    while (ready := process.get("/readyz")[0]) == 200:
        time.sleep(0.05)
    assert (ready, process.get("/livez")[0]) == (500, 200)
    assert b"[-]shutdown failed: reason withheld\n" in process.get("/readyz")[1]
    assert process.kubectl("create", "configmap", "late").strip() == "configmap/late created"
    process.child.communicate(timeout=20)
    assert process.child.returncode == 0


def refusal(*arguments: str) -> str:
    """The error output of a process that cannot start; it exits with status 1."""
    command = [sys.executable, "-m", "apiserver_stub", "--bind-address=127.0.0.1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_busy_port_is_one_error_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(f"--data-dir={tmp_path}", f"--secure-port={port}")
    assert said == f"apiserver-stub: cannot listen on 127.0.0.1:{port}: address already in use\n"


def test_data_folder_that_is_a_file_is_one_error_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    said = refusal(f"--data-dir={file / 'below'}", "--secure-port=0")
    assert str(file) in said
    assert said.count("\n") == 1


def test_data_folder_in_use_is_one_error_line(server: Process) -> None:
    said = refusal(f"--data-dir={server.folder}", "--secure-port=0")
    assert "is in use by another process" in said
    assert said.count("\n") == 1


def test_wrong_files_are_one_error_line(tmp_path: Path) -> None:
    memory = ("--storage-backend=memory", f"--data-dir={tmp_path}", "--secure-port=0")
    junk = tmp_path / "junk"
    junk.write_text("junk\n")
    pair = (f"--tls-cert-file={junk}", f"--tls-private-key-file={junk}")
    flags = "--tls-cert-file and --tls-private-key-file"
    said = f"apiserver-stub: {flags}: {junk} and {junk} cannot be served: they are no pair in PEM\n"
    assert refusal(*memory, *pair) == said
    assert refusal(*memory, f"--token-auth-file={junk}").startswith(f"apiserver-stub: {junk}, line 1: expected token,")
    missing = tmp_path / "missing"
    said = f"apiserver-stub: --client-ca-file: {missing} holds no certificates that can be read: "
    assert refusal(*memory, f"--client-ca-file={missing}") == f"{said}No such file or directory\n"
    assert "'Everything' is not a valid mode" in refusal(*memory, "--authorization-mode=Everything")


def test_second_signal_stops_at_once(start: Callable[..., Process]) -> None:
    process = start("--storage-backend=memory", "--shutdown-delay-duration=60s")
    process.child.send_signal(signal.SIGTERM)
    while process.get("/readyz")[0] == 200:
        time.sleep(0.05)
    time.sleep(1.1)  # sooner it would merge with the first signal
    assert process.stop(signal.SIGINT) == 1
    last = process.log.splitlines()[-1]
    assert last.startswith("E")
    assert 'reason="received SIGINT while stopping" status=1' in last


def test_log_format_follows_the_flags(start: Callable[..., Process], tmp_path: Path) -> None:
    process = start("--storage-backend=memory", "-v=1", "--vmodule=apiserver_stub/server/handler_chain=4,main=2")
    assert process.get("/version")[0] == 200
    assert process.stop() == 0
    assert 'FLAG: --shutdown-delay-duration="0s"\n' in process.log
    assert re.search(r"handler_chain\.py:\d+\] \"answered\" .* path=\"'/version'\"", process.log)


@pytest.mark.parametrize("frequency", ["10ms", "1h"])
def test_info_log_can_go_to_standard_output(tmp_path: Path, frequency: str) -> None:
    flags = ("--feature-gates=LoggingAlphaOptions=true,WatchListClient=true", "--log-text-split-stream")
    buffer = ("--log-text-info-buffer-size=64Ki", f"--log-flush-frequency={frequency}", "--storage-backend=memory")
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = Process(tmp_path / "data", *flags, *buffer, stdout=file)
    try:
        process.wait_ready()
        until = time.monotonic() + (30 if frequency == "10ms" else 2)
        while '"ready"' not in out.read_text() and time.monotonic() < until:
            time.sleep(0.05)
        assert ('"ready"' in out.read_text()) is (frequency == "10ms")
        assert process.stop() == 0
    finally:
        process.child.kill()
    assert '"ready"' in out.read_text()
    assert "the feature gate WatchListClient has no effect here" in process.log
    assert '"ready"' not in process.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_start_exits_cleanly(number: signal.Signals) -> None:
    code = "import os, sys; from apiserver_stub.process import main\n"
    code += f"main.command_line = lambda *_: os.kill(os.getpid(), {int(number)})\nmain.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    said = f"apiserver-stub: received {number.name} before anything was started\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", said)


def test_help_and_version_import_no_server_modules() -> None:
    unwanted = ("aiohttp", "cryptography", "sqlite3", "asyncio", "structlog", "prometheus_client")
    code = "import sys; sys.argv = ['x', sys.argv[1]]; from apiserver_stub.process.main import main\n"
    code += f"try:\n    main()\nexcept SystemExit:\n    print([name for name in {unwanted} if name in sys.modules])"
    for asked in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-c", code, asked], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.endswith("\n[]\n")


def test_server_imports_no_optional_modules() -> None:
    unwanted = ["aiohttp", "grpc", "opentelemetry", "nacl", "controller_manager.common.cel"]
    code = f"import sys, apiserver_stub.process.build; print([name for name in {unwanted} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
