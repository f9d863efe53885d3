"""Certificates of a running server: renewed, replaced, and the trust in clients, in virtual time."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.pki.certificates import ServerCertificates
from apiserver_stub.process.pki.folders import close_folders
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.clock import utc_now, wall_seconds
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.tls import KeyPair, issue, make_ca
from controller_manager.common.serving.trust import Trust, digest
from controller_manager.testing.virtual import VirtualLoop

pytestmark = pytest.mark.virtual

CONFIGS = "/api/v1/namespaces/default/configmaps"
DAY = 86400.0
FOREIGN = "--client-ca-file={}/clients.crt"


def root(ca: KeyPair | bytes) -> str:
    pem = ca if isinstance(ca, bytes) else ca.certificate
    return digest(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))


class Serving:
    """A server without sockets; `ask` passes a request to it like the socket."""

    def __init__(self, handle: Callable[[Request], Awaitable[Response]], made: ServerCertificates, folder: Path):
        self.handle = handle
        self.certificates = made
        self.folder = folder

    async def ask(self, certificate: Certificate | None, path: str = CONFIGS, **headers: str) -> Response:
        query = (("watch", "1"),) if path.endswith("?watch=1") else ()
        return await self.handle(Request("GET", path.partition("?")[0], query, headers, certificate=certificate))

    def server_certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.folder / "apiserver.crt").read_bytes())

    def admin_certificate(self) -> x509.Certificate:
        user = yaml.safe_load((self.folder / "admin.kubeconfig").read_text())["users"][0]["user"]
        return x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))


@asynccontextmanager
async def serving(folder: Path, *flags: str, lifetime: timedelta = timedelta(days=365)) -> AsyncIterator[Serving]:
    options = FLAGS.parse([f"--data-dir={folder}", "--storage-backend=memory", "--bind-address=127.0.0.1", *flags])
    trust, runtime = Trust(), Runtime("test")
    clients = ClientCertificates(trust)
    close_folders(options)
    api = build(options, runtime, certificates=clients)
    await api.open()
    made = ServerCertificates(options, trust, runtime.log("certificates"), lifetime)
    made.own_pair()
    made.write_kubeconfig(6443)
    await api.settle(6443, made.published())
    async with Tasks() as tasks:
        tasks.start(made.keep(6443), name="certificates")
        tasks.start(api.keep_settled(6443, made.published), name="upkeep")
        yield Serving(clients.following(api.handle), made, folder)
    api.end_streams()
    await api.stop()


def client(folder: Path, *, lasts: float = DAY, ca: KeyPair | None = None) -> Certificate:
    signer = ca.certificate if ca else (folder / "client-ca.crt").read_bytes()
    return Certificate("jane", ("dev",), root(signer), wall_seconds() + lasts)


async def advance_time(seconds: float) -> None:
    """Advance the clock at once, and then run the tasks of every minute."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.jump(seconds)
    await asyncio.sleep(70)


async def read(response: Response) -> list[Any]:
    assert not isinstance(response.body, bytes)
    return [json.loads(line) async for chunk in response.body for line in chunk.splitlines()]


async def test_issued_certificates_are_renewed(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        before = server.server_certificate(), server.admin_certificate()
        await advance_time(200 * DAY)
        assert (server.server_certificate(), server.admin_certificate()) == before
        await advance_time(60 * DAY)
        for old, new in zip(before, (server.server_certificate(), server.admin_certificate()), strict=True):
            assert new.not_valid_before_utc < old.not_valid_after_utc - timedelta(days=100)
            assert new != old
            assert new.not_valid_after_utc - utc_now() > timedelta(days=200)


async def test_one_worker_renews_shared_certificates(tmp_path: Path) -> None:
    """The other workers read the renewed files and do not write them."""
    options = FLAGS.parse([f"--data-dir={tmp_path}", "--storage-backend=memory", "--bind-address=127.0.0.1"])
    log = Runtime("test").log("certificates")
    first, other = (ServerCertificates(options, Trust(), log, renew=renew) for renew in (True, False))
    first.own_pair()
    first.write_kubeconfig(6443)
    before = [(tmp_path / name).read_bytes() for name in ("apiserver.crt", "admin.kubeconfig")]
    async with Tasks() as tasks:
        tasks.start(other.keep(6443), name="other")
        await advance_time(300 * DAY)
        assert [(tmp_path / name).read_bytes() for name in ("apiserver.crt", "admin.kubeconfig")] == before
        tasks.start(first.keep(6443), name="first")
        await asyncio.sleep(120)
    after = [(tmp_path / name).read_bytes() for name in ("apiserver.crt", "admin.kubeconfig")]
    assert all(one != another for one, another in zip(before, after, strict=True))


async def test_short_lived_certificates_are_renewed(tmp_path: Path) -> None:
    async with serving(tmp_path, lifetime=timedelta(minutes=10)) as server:
        for _ in range(20):
            await asyncio.sleep(60)
            for one in (server.server_certificate(), server.admin_certificate()):
                assert one.not_valid_after_utc - utc_now() > timedelta(minutes=2)


async def test_certificate_is_trusted_until_it_expires(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        jane = client(tmp_path, lasts=60)
        assert (await server.ask(jane)).status == 200
        await asyncio.sleep(59)
        assert (await server.ask(jane)).status == 200
        await asyncio.sleep(1)
        assert (await server.ask(jane)).status == 401


@pytest.mark.parametrize("authority", ["ca", "front-proxy-ca", "signing-ca"])
async def test_certificates_of_other_cas_are_rejected(tmp_path: Path, authority: str) -> None:
    async with serving(tmp_path) as server:
        mallory = Certificate("m", ("system:masters",), root((tmp_path / f"{authority}.crt").read_bytes()))
        assert (await server.ask(mallory)).status == 401
        assert (await server.ask(Certificate("system:apiserver", ("system:masters",)))).status == 401


async def test_token_is_used_beside_untrusted_certificate(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("good,joe,1\n")
    async with serving(tmp_path / "data", f"--token-auth-file={tmp_path / 'tokens'}") as server:
        old = client(tmp_path / "data", lasts=-1)
        assert (await server.ask(old, authorization="Bearer good")).status == 200
        assert (await server.ask(old, authorization="Bearer forged")).status == 401
        assert (await server.ask(old, authorization="Basic good")).status == 401
        watch = await server.ask(old, f"{CONFIGS}?watch=1", authorization="Bearer good")
        assert getattr(watch.body, "ends_at", 0.0) > asyncio.get_running_loop().time() + 60  # when it is disconnected
        began = wall_seconds()
        assert (await read(watch), wall_seconds() - began > 60) == ([], True)


async def test_watch_ends_when_certificate_expires(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        long, brief = client(tmp_path, lasts=3600), client(tmp_path, lasts=90)
        lasting = await server.ask(long, f"{CONFIGS}?watch=1")
        ending = await server.ask(brief, f"{CONFIGS}?watch=1")
        began = wall_seconds()
        await read(ending)
        assert wall_seconds() - began == pytest.approx(90, abs=0.1)
        await read(lasting)
        assert wall_seconds() - began <= 3600.1


async def test_replaced_client_ca_file_takes_effect(tmp_path: Path) -> None:
    first, second = make_ca("first"), make_ca("second")
    (tmp_path / "clients.crt").write_bytes(first.certificate)
    async with serving(tmp_path / "data", FOREIGN.format(tmp_path)) as server:
        old, new = client(tmp_path, ca=first), client(tmp_path, ca=second)
        assert [(await server.ask(one)).status for one in (old, new)] == [200, 401]
        watch, began = await server.ask(old, f"{CONFIGS}?watch=1"), wall_seconds()
        (tmp_path / "clients.crt").write_bytes(second.certificate)
        await read(watch)
        assert wall_seconds() - began <= 5.1
        assert [(await server.ask(one)).status for one in (old, new)] == [401, 200]
        assert (await server.ask(client(tmp_path / "data"))).status == 200


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERT", None])
async def test_broken_client_ca_file_is_ignored(tmp_path: Path, content: bytes | None) -> None:
    first = make_ca("first")
    file = tmp_path / "clients.crt"
    file.write_bytes(first.certificate)
    async with serving(tmp_path / "data", FOREIGN.format(tmp_path)) as server:
        file.unlink() if content is None else file.write_bytes(content)
        await asyncio.sleep(60)
        assert (await server.ask(client(tmp_path, ca=first))).status == 200
        second = make_ca("second")
        file.write_bytes(second.certificate)
        await asyncio.sleep(10)
        assert (await server.ask(client(tmp_path, ca=second))).status == 200


async def test_client_ca_file_without_certificates_fails_start(tmp_path: Path) -> None:
    (tmp_path / "clients.crt").write_bytes(b"nothing\n")
    with pytest.raises(ValueError, match=r"--client-ca-file: .*clients\.crt holds no certificates that can be read"):
        async with serving(tmp_path / "data", FOREIGN.format(tmp_path)):
            pass


async def test_replaced_own_ca_reissues_certificates(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        old, other = client(tmp_path), make_ca("other")
        other.write(tmp_path / "client-ca.crt", tmp_path / "client-ca.key")
        await asyncio.sleep(70)
        assert (await server.ask(old)).status == 401
        assert (await server.ask(client(tmp_path))).status == 200
        server.admin_certificate().verify_directly_issued_by(x509.load_pem_x509_certificate(other.certificate))
        assert other.certificate.decode() == (await published(server))["client-ca-file"]


async def published(server: Serving) -> dict[str, str]:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    response = await server.ask(client(server.folder), path)
    assert isinstance(response.body, bytes)
    data: dict[str, str] = json.loads(response.body)["data"]
    return data


async def test_client_and_proxy_cas_are_published(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        data = await published(server)
        assert data["client-ca-file"] == (tmp_path / "client-ca.crt").read_text()
        assert data["requestheader-client-ca-file"] == (tmp_path / "front-proxy-ca.crt").read_text()
        assert {name for name in data if name.startswith("requestheader")} == {
            "requestheader-allowed-names",
            "requestheader-client-ca-file",
            "requestheader-extra-headers-prefix",
            "requestheader-group-headers",
            "requestheader-username-headers",
        }


async def test_data_folders_are_private(tmp_path: Path) -> None:
    data, certs = tmp_path / "data", tmp_path / "certs"
    certs.mkdir(mode=0o755)
    async with serving(data, f"--cert-dir={certs}"):
        assert [folder.stat().st_mode & 0o777 for folder in (data, certs)] == [0o700, 0o700]


AS_JOE = {"x-remote-user": "joe", "x-remote-group": "dev"}
PROXIES = ("--requestheader-client-ca-file={}/proxies.crt", "--requestheader-allowed-names=front")


def proxy_flags(folder: Path, *more: str) -> tuple[KeyPair, tuple[str, ...]]:
    proxies = make_ca("proxies")
    proxies.write(folder / "proxies.crt", folder / "proxies.key")
    return proxies, tuple(flag.format(folder) for flag in (*PROXIES, *more))


async def test_trusted_proxy_may_name_users(tmp_path: Path) -> None:
    proxies, flags = proxy_flags(tmp_path)
    async with serving(tmp_path / "data", *flags) as server:
        for name, status in (("front", 200), ("other", 401)):
            asked = await server.ask(Certificate(name, root=root(proxies)), **AS_JOE)
            assert asked.status == status
        own = (tmp_path / "data" / "client-ca.crt").read_bytes()
        assert (
            await server.ask(Certificate("front", root=root(own)), **AS_JOE)
        ).status == 200  # the proxy itself, not joe
        assert (await server.ask(Certificate("front", root=root(proxies)))).status == 401  # may name no user


async def test_watch_through_proxy_ends_when_trust_ends(tmp_path: Path) -> None:
    proxies, flags = proxy_flags(tmp_path)
    async with serving(tmp_path / "data", *flags) as server:
        watch = await server.ask(Certificate("front", root=root(proxies)), f"{CONFIGS}?watch=1", **AS_JOE)
        assert watch.status == 200
        (tmp_path / "proxies.crt").write_bytes(make_ca("others").certificate)
        async with asyncio.timeout(10):
            async for _ in watch.body:
                pass
        asked = await server.ask(Certificate("front", root=root(proxies)), **AS_JOE)
        assert asked.status == 401


async def test_proxy_cas_of_flags_are_published(tmp_path: Path) -> None:
    more = ("--requestheader-username-headers=X-User", "--requestheader-uid-headers=X-Uid,X-Remote-Uid")
    proxies, flags = proxy_flags(tmp_path, *more)
    async with serving(tmp_path / "data", *flags) as server:
        data = await published(server)
    shown = {name.removeprefix("requestheader-"): text for name, text in data.items()}
    assert data["requestheader-client-ca-file"] == proxies.certificate.decode()
    assert {name: json.loads(text) for name, text in shown.items() if text.startswith("[")} == {
        "allowed-names": ["front"],
        "username-headers": ["X-User"],
        "uid-headers": ["X-Uid", "X-Remote-Uid"],
        "group-headers": ["x-remote-group"],
        "extra-headers-prefix": ["x-remote-extra-"],
    }
    assert proxies.certificate.decode() not in data["client-ca-file"]


async def test_proxy_client_certificate_is_renewed(tmp_path: Path) -> None:
    async with serving(tmp_path, lifetime=timedelta(days=3)) as server:
        first = server.certificates.proxy_pair()
        await advance_time(DAY)
        assert server.certificates.proxy_pair() == first
        await advance_time(1.1 * DAY)
        second = server.certificates.proxy_pair()
        assert second is not None
        assert second != first
        authority = x509.load_pem_x509_certificate((tmp_path / "front-proxy-ca.crt").read_bytes())
        x509.load_pem_x509_certificate(second.certificate).verify_directly_issued_by(authority)


async def test_proxy_client_certificate_can_be_configured(tmp_path: Path) -> None:
    files = tmp_path / "proxy.crt", tmp_path / "proxy.key"
    given = issue(make_ca("proxies"), "mine", client=True)
    given.write(*files)
    flags = (f"--proxy-client-cert-file={files[0]}", f"--proxy-client-key-file={files[1]}")
    async with serving(tmp_path / "data", *flags) as server:
        assert server.certificates.proxy_pair() == given
        files[1].write_bytes(b"nonsense")
        await asyncio.sleep(6)
        assert server.certificates.proxy_pair() == given
        other = issue(make_ca("proxies"), "mine", client=True)
        other.write(*files)
        await asyncio.sleep(6)
        assert server.certificates.proxy_pair() == other
