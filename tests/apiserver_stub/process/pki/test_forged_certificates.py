"""Forged client certificates over real TLS never authenticate a user."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.common.flags import FLAGS, ServingOptions
from apiserver_stub.process.build import build
from controller_manager.common.base.files import memory_file
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.component.secure_server import secure_server
from controller_manager.common.serving.certificates import FilePair
from controller_manager.common.serving.http_server import ServerLimits
from controller_manager.common.serving.tls import issue, make_ca
from controller_manager.common.serving.trust import CLIENTS, PROXIES, Trust

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
NOW = datetime.now(UTC)
DAY = timedelta(days=1)
CLIENT, SERVER, ANY = (
    ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
)  # fmt: skip


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, *form)


def name_of(common_name: str, *groups: str, uids: tuple[str, ...] = ()) -> x509.Name:
    uid = ObjectIdentifier("1.3.6.1.4.1.57683.2")
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            *([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []),
            *(x509.NameAttribute(uid, one) for one in uids),
        ]
    )


ADMIN = name_of("admin", "system:masters")


def issue_certificate(
    by: Issued | None,
    subject: x509.Name = ADMIN,
    *,
    key: Key | None = None,
    ca: bool | None = False,
    depth: int | None = None,
    use: tuple[ObjectIdentifier, ...] | None = (CLIENT,),
    begins: datetime = NOW - DAY,
    ends: datetime = NOW + DAY,
    issuer: x509.Name | None = None,
    critical: bool = False,
    signs: bool | None = None,
) -> Issued:
    """A certificate issued by another, by default a valid one for an administrator."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    issuer = issuer or (by.certificate.subject if by else subject)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, depth), critical=True)
    if use is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(use), critical=False)
    if critical:
        unknown = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4.5"), b"\x05\x00")
        builder = builder.add_extension(unknown, critical=True)
    if signs is not None:
        usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
        more = {**usage, "encipher_only": False, "decipher_only": False, "crl_sign": False, "digital_signature": True}
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=signs, **more), critical=True)
    return Issued(builder.sign(by.key if by else key, hashes.SHA256()), key)


def authority(name: str, by: Issued | None = None, **more: Any) -> Issued:
    return issue_certificate(by, name_of(name), ca=True, use=None, **more)


ROOT, PROXIES_ROOT = authority("clients"), authority("proxies")
TWIN = authority("clients")  # with the same name and another key
LEAF = issue_certificate(ROOT, name_of("leaf"))
MIDDLE = authority("middle", ROOT, depth=0)
OLD_MIDDLE = authority("old middle", ROOT, ends=NOW - timedelta(minutes=5))
SERVERS_MIDDLE = issue_certificate(ROOT, name_of("for servers"), ca=True, use=(SERVER,))
NO_SIGNER = authority("no signer", ROOT, signs=False)
PLAIN_MIDDLE = issue_certificate(ROOT, name_of("plain middle"), ca=None, use=None)

FORGED: dict[str, tuple[Issued, ...]] = {
    "expired": (issue_certificate(ROOT, ends=NOW - timedelta(minutes=5)),),
    "not valid yet": (issue_certificate(ROOT, begins=NOW + DAY, ends=NOW + 2 * DAY),),
    "of an authority of the same name": (issue_certificate(TWIN),),
    "of an authority of the same name, which is shown": (issue_certificate(TWIN), TWIN),
    "of an authority of the same name, beside the real one": (issue_certificate(TWIN), ROOT),
    "self-signed": (issue_certificate(None),),
    "self-signed, of the name of the authority": (issue_certificate(None, name_of("clients")),),
    "self-signed, as an authority": (issue_certificate(None, ca=True),),
    "self-signed, beside the real authority": (issue_certificate(None), ROOT),
    "said to be of the authority, signed by itself": (issue_certificate(None, issuer=ROOT.certificate.subject),),
    "of an unknown authority": (issue_certificate(authority("others")),),
    "of the authority of proxies": (issue_certificate(PROXIES_ROOT),),
    "for servers only": (issue_certificate(ROOT, use=(SERVER,)),),
    "for signing code only": (issue_certificate(ROOT, use=(ExtendedKeyUsageOID.CODE_SIGNING,)),),
    "with what must be understood": (issue_certificate(ROOT, critical=True),),
    "signed by a client": (issue_certificate(LEAF), LEAF),
    "signed by a client, beside the real authority": (issue_certificate(LEAF), LEAF, ROOT),
    "signed by what says nothing of being an authority": (issue_certificate(PLAIN_MIDDLE), PLAIN_MIDDLE),
    "signed by an authority that may not sign": (issue_certificate(NO_SIGNER), NO_SIGNER),
    "signed by an authority that has expired": (issue_certificate(OLD_MIDDLE), OLD_MIDDLE),
    "signed by an authority for servers": (issue_certificate(SERVERS_MIDDLE), SERVERS_MIDDLE),
    "signed by an authority below one that may have none": (
        issue_certificate(lower := authority("lower", MIDDLE)), lower, MIDDLE,
    ),
    "signed by an authority that is not shown": (issue_certificate(MIDDLE),),
    "signed by an authority of a stranger, beside a good one": (issue_certificate(authority("middle")), MIDDLE),
    "with a key of 1024 bits": (issue_certificate(ROOT, key=rsa.generate_private_key(65537, 1024)),),
    "without a name": (issue_certificate(ROOT, name_of("", "system:masters")),),
    "with two uids": (issue_certificate(ROOT, name_of("admin", "system:masters", uids=("1", "2"))),),
    "a good one, whose key is another": (Issued(LEAF.certificate, TWIN.key),),
}  # fmt: skip

GOOD: dict[str, tuple[Issued, ...]] = {
    "a client": (issue_certificate(ROOT, name_of("jane", "dev")),),
    "a client without a use": (issue_certificate(ROOT, name_of("jane", "dev"), use=None),),
    "a client below another authority": (issue_certificate(MIDDLE, name_of("jane", "dev")), MIDDLE),
    "a client, beside a certificate not asked for": (issue_certificate(ROOT, name_of("jane", "dev")), TWIN),
    "a client with a uid": (issue_certificate(ROOT, name_of("jane", "dev", uids=("7",))),),
}


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    trust = Trust()
    trust.set(CLIENTS, ROOT.pem)
    trust.set(PROXIES, PROXIES_ROOT.pem)
    (tmp_path / "proxies.pem").write_bytes(PROXIES_ROOT.pem)
    pair = tmp_path / "tls.crt", tmp_path / "tls.key"
    issue(make_ca("servers"), "server", hosts=("127.0.0.1",)).write(*pair)
    options = FLAGS.parse(
        (
            "--storage-backend=memory", "--advertise-address=192.0.2.1", "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1", "--secure-port=0", f"--requestheader-client-ca-file={tmp_path / 'proxies.pem'}",
            f"--tls-cert-file={pair[0]}", f"--tls-private-key-file={pair[1]}",
        )
    )  # fmt: skip
    api = build(options, Runtime("test"), certificates=ClientCertificates(trust))
    await api.open()
    server = secure_server(
        api.handle, options[ServingOptions], trust, lambda: FilePair(*pair, ("", "")), ServerLimits()
    )
    await server.start()
    await api.settle(server.port)
    yield server.port
    await server.stop()
    await api.stop()


async def identified_user(port: int, chain: tuple[Issued, ...], *headers: str) -> dict[str, Any] | str:
    """The user that a server identifies by a certificate chain, or the outcome of the attempt."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with memory_file(b"".join(one.pem for one in chain)) as cert, memory_file(chain[0].key_pem) as key:
        try:
            context.load_cert_chain(cert, key)
        except ssl.SSLError:
            return "no certificate and its key"
    lines = ["POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1", "host: x", "connection: close"]
    lines += ["content-length: 2", "content-type: application/json", *headers]
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write("\r\n".join([*lines, "", "{}"]).encode())
            answer = await reader.read(-1)
            writer.close()
    except (ConnectionError, ssl.SSLError) as error:
        return f"TLS: {error}"
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ")[1].decode() if head else "nothing"
    return json.loads(body)["status"]["userInfo"] if status == "201" else status


@pytest.mark.parametrize("case", GOOD)
async def test_valid_certificates_are_accepted(port: int, case: str) -> None:
    found = await identified_user(port, GOOD[case])
    assert isinstance(found, dict), found
    assert (found["username"], found["groups"]) == ("jane", ["dev", "system:authenticated"])
    assert found.get("uid", "") == ("7" if "uid" in case else "")
    digest = GOOD[case][0].certificate.fingerprint(hashes.SHA256()).hex()
    assert found["extra"] == {"authentication.kubernetes.io/credential-id": [f"X509SHA256={digest}"]}


async def test_forged_certificates_are_rejected(port: int) -> None:
    outcomes = {case: await identified_user(port, chain) for case, chain in FORGED.items()}
    assert not {case: outcome for case, outcome in outcomes.items() if isinstance(outcome, dict)}
    allowed = ("TLS: ", "401", "403", "nothing", "no certificate")
    assert all(str(outcome).startswith(allowed) for outcome in outcomes.values()), outcomes


async def test_proxy_headers_with_forged_certificates_are_rejected(port: int) -> None:
    headers = ("x-remote-user: admin", "x-remote-group: system:masters")
    for case, chain in FORGED.items():
        if case != "of the authority of proxies":
            assert not isinstance(await identified_user(port, chain, *headers), dict), case
    proxy = (issue_certificate(PROXIES_ROOT, name_of("front")),)
    found = await identified_user(port, proxy, "x-remote-user: alice")
    assert isinstance(found, dict)
    assert found["username"] == "alice"
    old = (issue_certificate(PROXIES_ROOT, name_of("front"), ends=NOW - timedelta(minutes=5)),)
    assert not isinstance(await identified_user(port, old, *headers), dict)


async def test_proxy_headers_with_odd_names_are_ignored(port: int) -> None:
    joe = (issue_certificate(ROOT, name_of("joe")),)
    for header in (
        "x-remote-user: admin", "X_Remote_User: admin", "x-remote-user : admin", " x-remote-user: admin",
        "x-remote-user:\tadmin", "x-remote-user\x00: admin", "x-remote-us\u017fer: admin",
    ):  # fmt: skip
        found = await identified_user(port, joe, header)
        assert not isinstance(found, dict) or found["username"] == "joe", header
