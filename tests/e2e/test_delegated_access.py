"""Access to the pages of a manager, attacked with real processes, real TLS and handmade bytes."""

import json
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.serving.tls import KeyPair, issue, make_ca

pytestmark = pytest.mark.e2e

PROXIES, OTHERS = make_ca("proxies"), make_ca("others")
CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Connection:
    """A TLS connection that stays open; `ask` returns the status of an answer, 0 if there is none."""

    def __init__(self, port: int, folder: Path, pair: KeyPair | None = None) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if pair is not None:
            pair.write(folder / "shown.crt", folder / "shown.key")
            context.load_cert_chain(folder / "shown.crt", folder / "shown.key")
        self.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=60))

    def ask(self, path: str = "/metrics", *headers: str, method: str = "GET") -> int:
        lines = (f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", "")
        try:
            self.socket.sendall("\r\n".join(lines).encode())
            answer = HTTPResponse(self.socket, method=method)
            answer.begin()
            answer.read()
        except (OSError, HTTPException):
            return 0
        return answer.status


class Control:
    """An API server and managers that use it; every process ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tokens").write_text("good,alice,1\n")
        (folder / "proxies").write_bytes(PROXIES.certificate)
        self.children: list[subprocess.Popen[str]] = []
        self.port = free_port()
        data = folder / "data"
        tokens = f"--token-auth-file={folder / 'tokens'}"
        self._start("apiserver_stub", "ready", f"--data-dir={data}", f"--secure-port={self.port}", tokens)
        self.authority = KeyPair((data / "client-ca.crt").read_bytes(), (data / "client-ca.key").read_bytes())
        self.kubeconfig = data / "admin.kubeconfig"

    def manager(self, *flags: str) -> int:
        """The port of a new manager."""
        port = free_port()
        whom = (f"--{name}kubeconfig={self.kubeconfig}" for name in ("", "authentication-", "authorization-"))
        self._start("controller_manager", "serving", *whom, f"--secure-port={port}", *flags)
        return port

    def api(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        context = ssl.create_default_context(cafile=str(self.kubeconfig.with_name("ca.crt")))
        issue(self.authority, "root", ("system:masters",), client=True).write(
            self.folder / "a.crt", self.folder / "a.key"
        )
        context.load_cert_chain(self.folder / "a.crt", self.folder / "a.key")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}", data, {"content-type": kind}, method=method
        )
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return json.load(answer)

    def stop(self) -> None:
        for child in reversed(self.children):
            child.terminate()
            child.communicate(timeout=20)

    def _start(self, module: str, until: str, *flags: str) -> None:
        command = [sys.executable, "-m", module, "--bind-address=127.0.0.1", *flags]
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        assert child.stderr is not None
        said = []
        for line in child.stderr:
            said.append(line)
            if f'"{until}"' in line or f"{until} " in line:
                return
        raise AssertionError("".join(said))


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    running = Control(tmp_path_factory.mktemp("control"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def manager(control: Control) -> int:
    """A manager that looks up client CAs, and trusts proxies named `front`."""
    proxies = control.folder / "proxies"
    return control.manager(f"--requestheader-client-ca-file={proxies}", "--requestheader-allowed-names=front")


@pytest.fixture
def connect(manager: int, tmp_path: Path) -> Callable[..., Connection]:
    def to(pair: KeyPair | None = None, port: int = manager) -> Connection:
        return Connection(port, tmp_path, pair)

    return to


def client(ca: KeyPair, name: str, *groups: str) -> KeyPair:
    return issue(ca, name, groups, client=True)


def test_only_open_paths_are_public(connect: Callable[..., Connection]) -> None:
    for method, status in (("GET", 200), ("HEAD", 200), ("POST", 405), ("OPTIONS", 405)):
        assert connect().ask("/healthz", method=method) == status
        assert connect().ask("/metrics", method=method) == 403
    for path in ("/healthz?token=good", "/livez"):
        assert connect().ask(path) == 200
    for _ in range(100):  # until the informers have synced
        if (status := connect().ask("/readyz?verbose")) == 200:
            break
        assert status == 500
        time.sleep(0.1)
    assert status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/healthz/../metrics",
        "//metrics",
        "/./metrics",
        "//healthz/../metrics",
        "/healthz%2f..%2fmetrics",
        "/healthz/%2e%2e/metrics",
        "/healthz;/metrics",
        "/healthz#/metrics",
        "/metrics?/healthz",
        "/METRICS",
        "/metrics/",
        "/healthz\\..\\metrics",
        "https://localhost/metrics",
        "/metrics?access_token=good&token=good",
    ],
)
def test_alternative_paths_do_not_bypass_access_checks(connect: Callable[..., Connection], path: str) -> None:
    assert connect().ask(path) in (400, 403, 404)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Authorization: Bearer good"], 200),
        (["authorization: bearer good"], 200),
        (["Authorization: Bearer forged"], 401),
        (["Authorization: Bearer good", "Authorization: Bearer forged"], 401),
        (["Authorization: Bearer"], 403),
        (["Authorization:"], 403),
        (["Authorization: Basic Z29vZDo="], 403),
        ([f"Authorization: Bearer {'a' * 30_000}"], 401),
        ([f"Authorization: Bearer {'a' * 100_000}"], 400),
        (["Authorization: Bearer \u00e9\u2603"], 401),
        (["Authorization: Bearer good\x7f"], 400),
        (["Authorization: Bearer good\x00"], 400),
        (["X-Remote-User: root", "X-Remote-Group: system:masters"], 403),
        (["Impersonate-User: root", "Impersonate-Group: system:masters"], 403),
        (["Impersonate-Uid: 1"], 400),
        (["Authorization: Bearer good", "Impersonate-User: system:anonymous"], 403),
        (["Authorization: Bearer good", "impersonate-EXTRA-scopes: x"], 400),
    ],
)
def test_identity_headers_alone_do_not_authenticate(
    connect: Callable[..., Connection], headers: list[str], status: int
) -> None:
    assert connect().ask("/metrics", *headers) == status
    assert connect().ask("/healthz") == 200


def test_client_certificates_authenticate(control: Control, connect: Callable[..., Connection]) -> None:
    jane = connect(client(control.authority, "jane"))
    assert jane.ask() == 200
    assert jane.ask("/metrics", "X-Remote-User: system:anonymous", "X-Remote-Group: system:unauthenticated") == 200
    anonymous = connect(client(control.authority, "system:anonymous"))
    assert anonymous.ask() == 403


@pytest.mark.parametrize("ca", [OTHERS, make_ca("client-ca")], ids=["unknown", "of the same name"])
def test_certificates_of_other_cas_cannot_connect(connect: Callable[..., Connection], ca: KeyPair) -> None:
    try:
        status = connect(client(ca, "kubernetes-admin", "system:masters")).ask()
    except OSError:
        status = 0
    assert status == 0


def test_proxy_certificates_may_name_users(control: Control, connect: Callable[..., Connection]) -> None:
    shown = client(PROXIES, "front", "system:masters")
    front = connect(shown)
    assert front.ask("/metrics", "X-Remote-User: alice") == 200
    assert front.ask("/metrics", "X-REMOTE-USER: alice", "x-Remote-Group: dev") == 200
    unknown = ("X-Remote-User: alice", "X-Remote-Group: dev", "X-Remote-Group: system:unauthenticated")
    assert front.ask("/metrics", *unknown) == 403
    assert front.ask("/metrics", "X-Remote-User: alice", "X-Remote-Group: dev, system:unauthenticated") == 200
    for headers in ((), ("X_Remote_User: alice",), ("X-Remote-User:", "X-Remote-Group: system:masters")):
        assert connect(shown).ask("/metrics", *headers) == 401
    assert connect(client(PROXIES, "back")).ask("/metrics", "X-Remote-User: alice") == 401
    assert connect(client(PROXIES, "back")).ask("/metrics", "Authorization: Bearer good") == 200
    by_client = connect(client(control.authority, "front"))
    assert by_client.ask("/metrics", "X-Remote-User: system:anonymous") == 200


def test_published_ca_changes_take_effect(control: Control, connect: Callable[..., Connection]) -> None:
    jane = connect(client(control.authority, "jane"))
    assert jane.ask() == 200
    port = control.manager("--leader-elect=false")
    changing = connect(client(control.authority, "jane"), port)
    assert changing.ask() == 200
    said = {"data": {"client-ca-file": OTHERS.certificate.decode()}}
    control.api("PATCH", CONFIG_MAP, said, "application/merge-patch+json")
    while (status := changing.ask()) == 200:
        time.sleep(0.02)
    assert status == 401
    assert connect(client(OTHERS, "jane"), port).ask() == 200
    said = {"data": {"client-ca-file": control.authority.certificate.decode()}}
    control.api("PATCH", CONFIG_MAP, said, "application/merge-patch+json")


def test_skipped_lookup_leaves_only_tokens(control: Control, connect: Callable[..., Connection]) -> None:
    port = control.manager("--authentication-skip-lookup", "--leader-elect=false")
    assert connect(client(control.authority, "jane"), port).ask() == 403
    assert connect(None, port).ask("/metrics", "Authorization: Bearer good") == 200


def test_manager_starts_if_lookup_fails(control: Control, connect: Callable[..., Connection], tmp_path: Path) -> None:
    nowhere = control.kubeconfig.read_text().replace(str(control.port), str(free_port()))
    (tmp_path / "nowhere").write_text(nowhere)
    away = f"--authentication-kubeconfig={tmp_path / 'nowhere'}"
    port = control.manager(away, "--authentication-tolerate-lookup-failure", "--leader-elect=false")
    assert connect(None, port).ask("/healthz") == 200
    assert connect(client(control.authority, "jane"), port).ask() == 403
    assert connect(None, port).ask("/metrics", "Authorization: Bearer good") == 401
