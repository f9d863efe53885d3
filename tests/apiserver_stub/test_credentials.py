"""The server's own authority: what it issues, keeps and issues again."""

import base64
import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from apiserver_stub.credentials import ADMIN, Authority, Identity, server_hosts, server_url
from controller_manager.serving.pairs import FilePair
from controller_manager.serving.tls import context_of, issue, make_ca

HOSTS = ["localhost", "127.0.0.1", "::1"]
URL = "https://127.0.0.1:6443"


def admin_certificate(file: Path) -> x509.Certificate:
    user = yaml.safe_load(file.read_text())["users"][0]["user"]
    return x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))


def test_everything_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "admin.kubeconfig"
    contents = []
    for _ in range(2):
        authority = Authority(tmp_path)
        files = authority.server_files(HOSTS)
        authority.kubeconfig(file, URL, ADMIN)
        contents.append([one.read_bytes() for one in (*files, file, authority.certificate_file)])
    assert contents[0] == contents[1]


def test_secrets_are_their_owners(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.kubeconfig(tmp_path / "admin.kubeconfig", URL, ADMIN)
    for name in ("ca.key", "admin.kubeconfig"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_the_server_pair_serves(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = context_of(FilePair(*authority.server_files(HOSTS)).read(), authority.certificate_file.read_bytes())
    assert context.verify_mode is ssl.CERT_OPTIONAL


def test_a_further_host_needs_another_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    before = authority.server_files(HOSTS)[0].read_bytes()
    after = authority.server_files([*HOSTS, "10.0.0.1"])[0].read_bytes()
    assert before != after


def test_a_certificate_that_ends_soon_is_issued_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert_file, key_file = authority.server_files(HOSTS)
    ca_pair = type(make_ca("x"))((tmp_path / "ca.crt").read_bytes(), (tmp_path / "ca.key").read_bytes())
    issue(ca_pair, "apiserver", hosts=HOSTS, days=3).write(cert_file, key_file)
    ending = cert_file.read_bytes()
    assert authority.server_files(HOSTS)[0].read_bytes() != ending


@pytest.mark.parametrize("content", [b"", b"apiVersion: v1\n", b"\xff", b"a: [", b"clusters: []\nusers: 3\n"])
def test_a_kubeconfig_that_does_not_serve_is_written_again(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "admin.kubeconfig"
    file.write_bytes(content)
    Authority(tmp_path).kubeconfig(file, URL, ADMIN)
    document = yaml.safe_load(file.read_text())
    assert document["clusters"][0]["cluster"]["server"] == URL


def test_a_kubeconfig_of_another_authority_is_written_again(tmp_path: Path) -> None:
    file = tmp_path / "admin.kubeconfig"
    Authority(tmp_path / "other").kubeconfig(file, URL, ADMIN)
    foreign = admin_certificate(file)
    Authority(tmp_path / "own").kubeconfig(file, URL, ADMIN)
    assert admin_certificate(file) != foreign


def test_a_client_certificate_names_user_and_groups(tmp_path: Path) -> None:
    file = tmp_path / "jane.kubeconfig"
    Authority(tmp_path).kubeconfig(file, URL, Identity("jane", ("dev", "ops")))
    assert admin_certificate(file).subject.rfc4514_string() == "CN=jane,O=ops,O=dev"


def test_the_hosts_of_a_server() -> None:
    hosts = server_hosts("192.0.2.7", "192.0.2.9", "10.0.0.1")
    assert {"localhost", "127.0.0.1", "::1", "kubernetes.default.svc", "10.0.0.1", "192.0.2.7", "192.0.2.9"} <= set(
        hosts
    )
    assert "0.0.0.0" not in server_hosts("0.0.0.0", "192.0.2.9", "10.0.0.1")


@pytest.mark.parametrize(
    ("bind", "url"),
    [("0.0.0.0", URL), ("::", URL), ("192.0.2.7", "https://192.0.2.7:6443"), ("::1", "https://[::1]:6443")],
)
def test_the_url_of_a_server(bind: str, url: str) -> None:
    assert server_url(bind, 6443) == url
