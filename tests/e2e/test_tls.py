"""TLS as seen by another program: certificates by name and renewed, versions, suites, sessions."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller_manager.app.pages.routes import ServingOptions, pages_server
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.component.secure_serving import SniPair
from controller_manager.common.serving import tls
from controller_manager.common.serving.http_server import HTTPServer
from controller_manager.common.serving.trust import CLIENTS, Trust

pytestmark = [pytest.mark.e2e, pytest.mark.needs("openssl")]

CA = tls.make_ca("ca")


async def client_name(request: Request) -> Response:
    return Response(200, {}, request.certificate.common_name.encode() if request.certificate else b"nobody")


def write(folder: Path, file: str, common_name: str, *, client: bool = False) -> tuple[str, str]:
    files = folder / f"{file}.crt", folder / f"{file}.key"
    tls.issue(CA, common_name, hosts=(f"{common_name}.test",), client=client).write(*files)
    return str(files[0]), str(files[1])


@pytest.fixture
async def server(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[HTTPServer]:
    cert, key = write(tmp_path, "main", "main")
    other = SniPair(*write(tmp_path, "other", "other"))
    trust = Trust()
    trust.set(CLIENTS, CA.certificate)
    options = ServingOptions(
        bind_address="127.0.0.1",
        secure_port=unused_tcp_port,
        tls_cert_file=cert,
        tls_private_key_file=key,
        tls_sni_cert_key=(other,),
    )
    made = pages_server(client_name, options, trust, "a-program")
    assert made is not None
    await made.start()
    yield made
    await made.stop(1)


async def openssl(server: HTTPServer, *arguments: str) -> str:
    """The output of openssl s_client for a connection that requests a page."""
    program = shutil.which("openssl")
    assert program, "these tests need openssl"
    command = (program, "s_client", "-connect", f"127.0.0.1:{server.port}", "-ign_eof", *arguments)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    out, _ = await asyncio.wait_for(child.communicate(b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), 20)
    return out.decode()


def subject(said: str) -> str:
    found = re.search(r"subject=CN\s*=\s*(\S+)", said)
    return found[1] if found else ""


async def test_server_name_selects_certificate_and_files_reload(server: HTTPServer, tmp_path: Path) -> None:
    assert subject(await openssl(server, "-noservername")) == "main"
    assert subject(await openssl(server, "-servername", "other.test")) == "other"
    write(tmp_path, "main", "renewed")
    async with asyncio.timeout(60):
        while subject(await openssl(server, "-noservername")) != "renewed":  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.2)
    assert subject(await openssl(server, "-servername", "other.test")) == "other"


async def test_tls_versions_and_protocols(server: HTTPServer) -> None:
    assert "TLSv1.3" in await openssl(server, "-tls1_3")
    assert "ALPN protocol: http/1.1" in await openssl(server, "-tls1_2", "-alpn", "h2,http/1.1")
    for old in ("-tls1", "-tls1_1"):
        assert "HTTP/1.1" not in await openssl(server, old, "-cipher", "ALL@SECLEVEL=0")
    assert "HTTP/1.1" not in await openssl(server, "-tls1_2", "-cipher", "AES128-SHA")


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
async def test_client_is_authenticated_in_every_session(server: HTTPServer, tmp_path: Path, version: str) -> None:
    cert, key = write(tmp_path, "alice", "alice", client=True)
    kept = str(tmp_path / "session")
    said = await openssl(server, version, "-cert", cert, "-key", key, "-sess_out", kept)
    assert said.rstrip().endswith(("alice", "closed"))
    assert "alice" in said.rpartition("\r\n\r\n")[2]
    assert "TLS session ticket:" not in said
    if version == "-tls1_2":
        again = await openssl(server, version, "-cert", cert, "-key", key, "-sess_in", kept)
        assert "alice" in again.rpartition("\r\n\r\n")[2]


async def test_client_of_unknown_ca_fails_the_handshake(server: HTTPServer, tmp_path: Path) -> None:
    files = tmp_path / "m.crt", tmp_path / "m.key"
    tls.issue(tls.make_ca("other"), "mallory", client=True).write(*files)
    said = await openssl(server, "-cert", str(files[0]), "-key", str(files[1]))
    assert "HTTP/1.1" not in said
    assert "alert unknown ca" in said
