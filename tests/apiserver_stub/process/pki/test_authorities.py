"""The server's own CAs: what they issue, keep and reissue."""

import asyncio
import base64
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from apiserver_stub.process.pki.addresses import server_hosts, server_url
from apiserver_stub.process.pki.authorities import ADMIN, Authorities, CertificateIdentity
from controller_manager.common.base.clock import utc_now
from controller_manager.common.serving.certificates import FilePair
from controller_manager.common.serving.tls import context_of, issue, make_ca
from controller_manager.testing.virtual import VirtualLoop

HOSTS = ["localhost", "127.0.0.1", "::1"]
URL = "https://127.0.0.1:6443"
AUTHORITIES = ("ca", "client-ca", "front-proxy-ca", "signing-ca")


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def admin_certificate(file: Path) -> x509.Certificate:
    user = yaml.safe_load(file.read_text())["users"][0]["user"]
    return x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))


def test_second_start_keeps_all_files(tmp_path: Path) -> None:
    file, contents = tmp_path / "admin.kubeconfig", []
    for _ in range(2):
        authorities = Authorities(tmp_path)
        authorities.server_files(HOSTS)
        authorities.kubeconfig(file, URL, ADMIN)
        authorities.renewable_kubeconfig(tmp_path / "manager.kubeconfig", URL, CertificateIdentity("manager"))
        contents.append({one: one.read_bytes() for one in tmp_path.iterdir()})
    assert contents[0] == contents[1]


def test_each_purpose_has_its_own_ca(tmp_path: Path) -> None:
    authorities = Authorities(tmp_path)
    authorities.server_files(HOSTS)
    authorities.kubeconfig(tmp_path / "admin.kubeconfig", URL, ADMIN)
    assert len({(tmp_path / f"{name}.crt").read_bytes() for name in AUTHORITIES}) == len(AUTHORITIES)
    certificate(tmp_path / "apiserver.crt").verify_directly_issued_by(certificate(tmp_path / "ca.crt"))
    admin = admin_certificate(tmp_path / "admin.kubeconfig")
    admin.verify_directly_issued_by(certificate(tmp_path / "client-ca.crt"))


def test_secret_files_are_private(tmp_path: Path) -> None:
    authorities = Authorities(tmp_path)
    authorities.server_files(HOSTS)
    authorities.kubeconfig(tmp_path / "admin.kubeconfig", URL, ADMIN)
    authorities.renewable_kubeconfig(tmp_path / "manager.kubeconfig", URL, CertificateIdentity("manager"))
    secrets = [file for file in tmp_path.iterdir() if file.suffix in (".key", ".kubeconfig", ".pem")]
    assert len(secrets) == len(AUTHORITIES) + 4
    assert {file.stat().st_mode & 0o777 for file in secrets} == {0o600}


def test_server_certificate_can_be_loaded(tmp_path: Path) -> None:
    authorities = Authorities(tmp_path)
    context = context_of(FilePair(*authorities.server_files(HOSTS)).read(), authorities.clients.pair.certificate)
    assert context.verify_mode is ssl.CERT_OPTIONAL


def test_additional_host_needs_new_certificate(tmp_path: Path) -> None:
    authorities = Authorities(tmp_path)
    before = authorities.server_files(HOSTS)[0].read_bytes()
    assert authorities.server_files([*HOSTS, "10.0.0.1"])[0].read_bytes() != before


def test_expiring_certificates_are_reissued(tmp_path: Path) -> None:
    file, manager = tmp_path / "admin.kubeconfig", tmp_path / "manager.kubeconfig"
    ending = []
    for lifetime in (timedelta(days=100), timedelta(days=365)):
        authorities = Authorities(tmp_path, lifetime)
        authorities.kubeconfig(file, URL, ADMIN)
        authorities.renewable_kubeconfig(manager, URL, CertificateIdentity("manager"))
        shown = authorities.server_files(HOSTS)[0].read_bytes()
        ending.append({shown, file.read_bytes(), manager.with_suffix(".pem").read_bytes()})
    assert not ending[0] & ending[1]


@pytest.mark.virtual
async def test_certificates_from_the_future_are_issued_again(tmp_path: Path) -> None:
    """As after the clock was set back."""
    authorities, manager = Authorities(tmp_path), tmp_path / "manager.kubeconfig"

    def issued() -> list[x509.Certificate]:
        authorities.kubeconfig(tmp_path / "admin.kubeconfig", URL, ADMIN)
        authorities.renewable_kubeconfig(manager, URL, CertificateIdentity("manager"))
        shown = certificate(authorities.server_files(HOSTS)[0])
        return [shown, admin_certificate(tmp_path / "admin.kubeconfig"), certificate(manager.with_suffix(".pem"))]

    before, proxy = issued(), authorities.proxy_pair()
    assert (issued(), authorities.proxy_pair(proxy)) == (before, proxy)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.jump(-timedelta(days=2).total_seconds())
    assert authorities.proxy_pair(proxy) != proxy
    assert not {*issued()} & {*before}
    assert all(one.not_valid_before_utc <= utc_now() for one in issued())


def test_renewed_client_certificate_keeps_its_path(tmp_path: Path) -> None:
    file = tmp_path / "manager.kubeconfig"
    Authorities(tmp_path).renewable_kubeconfig(file, URL, CertificateIdentity("manager", ("a",)))
    document = yaml.safe_load(file.read_text())
    assert document["users"][0]["user"] == {"client-certificate": "manager.pem", "client-key": "manager.pem"}
    assert document["clusters"][0]["cluster"] == {"server": URL, "certificate-authority": "ca.crt"}
    ssl.create_default_context().load_cert_chain(tmp_path / "manager.pem")
    assert certificate(tmp_path / "manager.pem").subject.rfc4514_string() == "CN=manager,O=a"


@pytest.mark.parametrize("content", [b"", b"apiVersion: v1\n", b"\xff", b"a: [", b"clusters: []\nusers: 3\n"])
def test_unusable_kubeconfig_is_rewritten(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "admin.kubeconfig"
    file.write_bytes(content)
    Authorities(tmp_path).kubeconfig(file, URL, ADMIN)
    document = yaml.safe_load(file.read_text())
    assert document["clusters"][0]["cluster"]["server"] == URL


def test_kubeconfig_of_another_ca_is_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "admin.kubeconfig"
    Authorities(tmp_path / "other").kubeconfig(file, URL, ADMIN)
    foreign = admin_certificate(file)
    Authorities(tmp_path / "own").kubeconfig(file, URL, ADMIN)
    assert admin_certificate(file) != foreign


def test_ca_replaced_with_its_key_is_used(tmp_path: Path) -> None:
    authorities, other = Authorities(tmp_path), make_ca("other")
    (tmp_path / "client-ca.crt").write_bytes(other.certificate)
    before = authorities.clients.pair
    with pytest.raises(ValueError, match=r"client-ca\.crt and .*client-ca\.key: the key is not the one"):
        authorities.reload()
    assert authorities.clients.pair == before
    (tmp_path / "client-ca.key").write_bytes(other.key)
    authorities.reload()
    assert authorities.clients.pair == other


def test_ca_without_key_is_not_replaced(tmp_path: Path) -> None:
    Authorities(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(FileNotFoundError):
        Authorities(tmp_path)


def test_leaf_certificate_is_not_a_ca(tmp_path: Path) -> None:
    issue(make_ca("ca"), "leaf").write(tmp_path / "ca.crt", tmp_path / "ca.key")
    with pytest.raises(ValueError, match="the certificate is not that of an authority"):
        Authorities(tmp_path)


def test_client_certificate_names_user_and_groups(tmp_path: Path) -> None:
    file = tmp_path / "jane.kubeconfig"
    Authorities(tmp_path).kubeconfig(file, URL, CertificateIdentity("jane", ("dev", "ops")))
    assert admin_certificate(file).subject.rfc4514_string() == "CN=jane,O=ops,O=dev"


def test_server_hosts() -> None:
    hosts = server_hosts("192.0.2.7", "192.0.2.9", "10.0.0.1")
    assert {"localhost", "127.0.0.1", "::1", "kubernetes.default.svc", "10.0.0.1", "192.0.2.7", "192.0.2.9"} <= set(
        hosts
    )
    for everywhere in ("", "0.0.0.0", "::"):
        assert everywhere not in server_hosts(everywhere, "192.0.2.9", "10.0.0.1")


@pytest.mark.parametrize(
    ("bind", "url"),
    [("", URL), ("0.0.0.0", URL), ("::", URL), ("192.0.2.7", "https://192.0.2.7:6443"), ("::1", "https://[::1]:6443")],
)
def test_server_url(bind: str, url: str) -> None:
    assert server_url(bind, 6443) == url
