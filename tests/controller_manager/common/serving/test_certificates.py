"""Certificates of new connections while certificates and authorities change, with handshakes in memory."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog.testing
from cryptography import x509

from controller_manager.common.serving import tls
from controller_manager.common.serving.certificates import Contexts, FilePair, Named, SelfSigned, UnusablePair
from controller_manager.common.serving.trust import CLIENTS, Trust

CA = tls.make_ca("ca")
OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
HOME = "127.0.0.1"


def client(
    version: ssl.TLSVersion | None = None, pair: tls.KeyPair | None = None, folder: Path | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if pair is not None and folder is not None:
        pair.write(folder / "client.crt", folder / "client.key")
        context.load_cert_chain(folder / "client.crt", folder / "client.key")
    return context


class TLSConnection:
    """A finished handshake; raises ssl.SSLError if one side refuses."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = None, **more) -> None:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(there, back, server_side=True)
        self.client = client.wrap_bio(back, there, server_hostname=name, **more)
        self._settle(self.client.do_handshake, self.server.do_handshake)
        self.send(b"x")

    def send(self, data: bytes) -> None:
        self.server.write(data)
        assert self.client.read(len(data)) == data
        self.client.write(data)
        assert self.server.read(len(data)) == data

    def served_names(self) -> str:
        der = self.client.getpeercert(binary_form=True)
        (name,) = x509.load_der_x509_certificate(der or b"").subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return str(name.value)

    @staticmethod
    def _settle(*steps: Callable[[], None]) -> None:
        waiting = list(steps)
        for _ in range(10):
            for step in tuple(waiting):
                try:
                    step()
                    waiting.remove(step)
                except ssl.SSLWantReadError:
                    pass
        assert not waiting


class Files:
    """A pair in a folder, renewed by `write`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cert_file, self.key_file = folder / f"{name}.crt", folder / f"{name}.key"
        self.source = FilePair(self.cert_file, self.key_file)

    def write(self, common_name: str, *hosts: str) -> tls.KeyPair:
        pair = tls.issue(CA, common_name, hosts=hosts)
        pair.write(self.cert_file, self.key_file)
        return pair


@pytest.fixture
def files(tmp_path) -> Files:
    made = Files(tmp_path, "server")
    made.write("first")
    return made


def served_names(contexts: Contexts, name: str | None = None, address: str = HOME) -> set[str]:
    return {TLSConnection(contexts(address), client(version), name).served_names() for version in (OLD, NEW)}


@pytest.mark.virtual
async def test_new_files_are_used_while_old_connections_continue(files):
    contexts = Contexts(files.source)
    before = TLSConnection(contexts(HOME), client())
    files.write("second")
    assert served_names(contexts) == {"first"}
    await asyncio.sleep(5)
    assert served_names(contexts) == {"second"}
    before.send(b"still here")


@pytest.mark.virtual
@pytest.mark.parametrize("damage", ["half written", "garbage", "gone", "foreign certificate", "encrypted"])
async def test_broken_pair_keeps_old_one_and_is_logged_once(files, damage):
    contexts = Contexts(files.source)
    whole = files.write("second")
    match damage:
        case "half written":
            files.key_file.write_bytes(whole.key[:80])
        case "garbage":
            files.cert_file.write_bytes(b"garbage")
        case "gone":
            files.key_file.unlink()
        case "encrypted":
            files.key_file.write_bytes(encrypted(whole.key))
        case _:
            files.cert_file.write_bytes(tls.issue(CA, "third").certificate)
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            await asyncio.sleep(5)
            assert served_names(contexts) == {"first"}
        contexts.renew()
        assert served_names(contexts) == {"first"}
        files.write("second")
        await asyncio.sleep(5)
        assert served_names(contexts) == {"second"}
    assert [line["log_level"] for line in lines] == ["error", "info"]
    assert str(files.cert_file) in lines[0]["source"]
    assert "PRIVATE" not in str(lines)
    assert "garbage" not in str(lines)


def encrypted(key: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    loaded = form.load_pem_private_key(key, None)
    secret = form.BestAvailableEncryption(b"secret")
    return loaded.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, secret)


def test_broken_pair_at_start_raises_unusable_pair(files):
    files.key_file.write_bytes(tls.issue(CA, "other").key)
    with pytest.raises(UnusablePair) as caught:
        Contexts(files.source)
    assert str(caught.value) == f"{files.cert_file} and {files.key_file} cannot be served: key values mismatch"


@pytest.mark.virtual
async def test_self_signed_pair_is_renewed_while_served(tmp_path):
    contexts = Contexts(SelfSigned("manager", ("localhost",), tmp_path))
    first = TLSConnection(contexts(HOME), client()).client.getpeercert(binary_form=True)
    await asyncio.sleep(359 * 86400)
    assert TLSConnection(contexts(HOME), client()).client.getpeercert(binary_form=True) != first


@pytest.mark.virtual
async def test_server_names_select_certificates_as_they_change(files, tmp_path):
    given, own = Files(tmp_path, "given"), Files(tmp_path, "own")
    given.write("given", "ignored.test")
    own.write("own", "own.test", "*.example")
    named = (Named(given.source, ("*.test", "a.example", HOME, "::1")), Named(own.source))
    contexts = Contexts(files.source, named)
    expected = {
        "a.example": "given",
        "b.example": "own",
        "own.test": "own",
        "x.test": "given",
        "x.y.test": "first",
        "localhost": "first",
    }
    for address in ("127.0.0.2", HOME):
        assert {name: served_names(contexts, name, address) for name in expected} == {
            name: {certificate} for name, certificate in expected.items()
        }
    assert served_names(contexts, None, "127.0.0.2") == {"first"}
    assert served_names(contexts, None, "::ffff:127.0.0.1") == served_names(contexts, None, "::1") == {"given"}
    own.write("newer", "newer.test")
    await asyncio.sleep(5)
    assert served_names(contexts, "newer.test") == {"newer"}
    assert served_names(contexts, "b.example") == {"first"}


@pytest.mark.parametrize("name", [None, "own.test"])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_client_authorities_change_for_new_connections(files, tmp_path, name, version):
    trust = Trust()
    own = Files(tmp_path, "own")
    own.write("own", "own.test")
    contexts = Contexts(files.source, [Named(own.source)], lambda: trust.authorities)
    trust.subscribe(contexts.renew)
    alice = client(version, tls.issue(CA, "alice", client=True), tmp_path)
    assert TLSConnection(contexts(HOME), alice, name).server.getpeercert(binary_form=True) is None
    trust.set(CLIENTS, CA.certificate)
    known = TLSConnection(contexts(HOME), alice, name)
    assert known.server.getpeercert(binary_form=True) is not None
    assert TLSConnection(contexts(HOME), client(version), name).server.getpeercert() is None
    trust.set(CLIENTS, tls.make_ca("other").certificate)
    with pytest.raises(ssl.SSLError, match=r"unable to get local issuer certificate|alert unknown ca"):
        TLSConnection(contexts(HOME), alice, name)
    known.send(b"still here")


@pytest.mark.parametrize("version", [OLD, NEW])
def test_session_is_not_resumed_after_its_authority_is_removed(files, tmp_path, version):
    trust = Trust()
    trust.set(CLIENTS, CA.certificate)
    contexts = Contexts(files.source, authorities=lambda: trust.authorities)
    trust.subscribe(contexts.renew)
    alice = client(version, tls.issue(CA, "alice", client=True), tmp_path)
    first = TLSConnection(contexts(HOME), alice)
    assert first.client.session is None or not first.client.session.has_ticket
    again = TLSConnection(contexts(HOME), alice, session=first.client.session)
    assert again.server.session_reused is (version is OLD)
    trust.set(CLIENTS, tls.make_ca("other").certificate)
    with pytest.raises(ssl.SSLError):
        TLSConnection(contexts(HOME), alice, session=first.client.session)


def test_comments_in_client_ca_bundle_are_ignored(files, tmp_path):
    bundle = "# Autoridad de Certificación\n".encode() + CA.certificate
    contexts = Contexts(files.source, authorities=lambda: bundle)
    alice = client(None, tls.issue(CA, "alice", client=True), tmp_path)
    assert TLSConnection(contexts(HOME), alice).server.getpeercert()
    with pytest.raises(ValueError, match="client CA bundle"):
        Contexts(files.source, authorities=lambda: b"nonsense")


def test_tls_policy_applies_to_every_server_name(files, tmp_path):
    own = Files(tmp_path, "own")
    own.write("own", "own.test")
    strict = Contexts(files.source, [Named(own.source)], policy=tls.TLSPolicy(NEW))
    narrow = Contexts(files.source, [Named(own.source)], policy=tls.TLSPolicy(OLD, "ECDHE-ECDSA-CHACHA20-POLY1305"))
    for name in (None, "own.test"):
        with pytest.raises(ssl.SSLError, match="alert protocol version"):
            TLSConnection(strict(HOME), client(OLD), name)
        assert TLSConnection(strict(HOME), client(NEW), name).server.version() == "TLSv1.3"
        assert (TLSConnection(narrow(HOME), client(OLD), name).server.cipher() or ("",))[
            0
        ] == "ECDHE-ECDSA-CHACHA20-POLY1305"
        assert TLSConnection(narrow(HOME), client(NEW), name).server.version() == "TLSv1.3"


def test_alpn_negotiates_http1_only(files):
    eager = client()
    eager.set_alpn_protocols(["h2", "http/1.1"])
    assert TLSConnection(Contexts(files.source)(HOME), eager).client.selected_alpn_protocol() == "http/1.1"


class Counted:
    """A pair that counts its reads."""

    name = "counted"

    def __init__(self) -> None:
        self.reads = 0
        self._pair = tls.issue(CA, "one", hosts=["one"])

    def read(self) -> tls.KeyPair:
        self.reads += 1
        return self._pair


@pytest.mark.virtual
async def test_many_connections_read_files_once_per_interval() -> None:
    source = Counted()
    contexts = Contexts(source)
    for _ in range(5):
        await asyncio.sleep(6)
        for _ in range(100):
            contexts(HOME)
    assert source.reads == 1 + 5
