"""The HTTPS server that the flags describe: addresses, certificates, TLS limits and error messages."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog.testing
from cryptography import x509

from controller_manager.app.access.options import AuthenticationOptions, believe_files
from controller_manager.app.pages.routes import ServingOptions, pages_server
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.options.flag import flags_of
from controller_manager.common.options.parse import FlagError, FlagSet
from controller_manager.common.serving import tls
from controller_manager.common.serving.http_server import HTTPServer
from controller_manager.common.serving.listening import CannotListen
from controller_manager.common.serving.trust import Trust

AES, CHACHA = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


async def handle(request: Request) -> Response:
    return Response(200, {}, request.certificate.common_name.encode() if request.certificate else b"anonymous")


def flags(*argv: str) -> ServingOptions:
    return FlagSet(ServingOptions).parse(argv)[ServingOptions]


def server(*argv: str, client_ca_file: str = "") -> HTTPServer | None:
    trust = Trust()
    believe_files(AuthenticationOptions(client_ca_file=client_ca_file), trust)
    return pages_server(handle, flags(*argv), trust, "a-program")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def serving(*argv: str) -> AsyncIterator[HTTPServer]:
    given = argv if any(one.startswith("--secure-port") for one in argv) else (*argv, f"--secure-port={free_port()}")
    made = server(*given)
    assert made is not None
    await made.start()
    try:
        yield made
    finally:
        await made.stop(1)


async def visit(
    server: HTTPServer,
    version: ssl.TLSVersion | None = None,
    name: str | None = None,
    host: str = "127.0.0.1",
    ciphers: str = "",
) -> tuple[x509.Certificate, str, str]:
    """Return what a client sees: the certificate, the cipher suite and the protocol."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    if ciphers:
        context.set_ciphers(ciphers)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    _, writer = await asyncio.open_connection(host, server.port, ssl=context, server_hostname=name or "")
    inner = writer.get_extra_info("ssl_object")
    shown = x509.load_der_x509_certificate(inner.getpeercert(binary_form=True))
    writer.close()
    return shown, inner.cipher()[0], inner.selected_alpn_protocol()


def common_name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def write(folder: Path, name: str, *hosts: str) -> tuple[str, str]:
    files = folder / f"{name}.crt", folder / f"{name}.key"
    tls.issue(tls.make_ca("ca"), name, hosts=hosts).write(*files)
    return str(files[0]), str(files[1])


@pytest.mark.flag("secure-port")
async def test_secure_port_flag_sets_port_and_0_disables_serving():
    port = free_port()
    async with serving(f"--secure-port={port}") as made:
        assert made.port == port
        await visit(made)
    assert server("--secure-port=0") is None


@pytest.mark.flag("bind-address")
@pytest.mark.parametrize(
    ("given", "reached"),
    [
        ("127.0.0.1", {"127.0.0.1"}),
        ("::1", {"::1"}),
        ("", {"127.0.0.1", "::1"}),
        ("0.0.0.0", {"127.0.0.1", "::1"}),
        ("::", {"127.0.0.1", "::1"}),
    ],
)
async def test_bind_address_limits_reachable_addresses(given, reached):
    async with serving(f"--bind-address={given}") as made:
        for host in ("127.0.0.1", "::1"):
            if host in reached:
                await visit(made, host=host)
            else:
                with pytest.raises(ConnectionRefusedError):
                    await visit(made, host=host)


@pytest.mark.flag("cert-dir")
async def test_generated_certificate_is_stored_and_reused(tmp_path):
    folder = tmp_path / "certs"
    shown = []
    for where in (f"--cert-dir={folder}", f"--cert-dir={folder}", "--cert-dir="):
        async with serving("--bind-address=127.0.0.1", where) as made:
            shown.append((await visit(made))[0])
    kept = x509.load_pem_x509_certificate((folder / "a-program.crt").read_bytes())
    assert shown[:2] == [kept, kept]
    assert shown[2] != kept
    names = kept.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "127.0.0.1", "::1", socket.gethostname()} == {str(one.value) for one in names}
    assert sorted(one.name for one in folder.iterdir()) == [
        "a-program.crt",
        "a-program.key",
    ]


@pytest.mark.flag("tls-cert-file", "tls-private-key-file", "tls-sni-cert-key")
async def test_certificate_files_are_selected_by_server_name(tmp_path):
    cert, key = write(tmp_path, "main")
    plain, wild = write(tmp_path, "plain", "plain.test"), write(tmp_path, "wild", "ignored.test")
    sni = (f"--tls-sni-cert-key={','.join(plain)}", f"--tls-sni-cert-key= {' , '.join(wild)} : *.test , ::1 ")
    async with serving(f"--tls-cert-file={cert}", f"--tls-private-key-file={key}", *sni) as made:
        asked = {"plain.test": "plain", "other.test": "wild", "ignored.example": "main"}
        assert {name: common_name((await visit(made, name=name))[0]) for name in asked} == asked
        assert common_name((await visit(made, host="::1"))[0]) == "wild"
        assert common_name((await visit(made))[0]) == "main"


def test_client_certificates_are_requested_with_client_ca(tmp_path):
    cert, key = write(tmp_path, "a")
    for authority, mode in (("", ssl.CERT_NONE), (cert, ssl.CERT_OPTIONAL)):
        made = server(f"--tls-cert-file={cert}", f"--tls-private-key-file={key}", client_ca_file=authority)
        assert made is not None
        assert made._choose("127.0.0.1").verify_mode is mode


@pytest.mark.flag("tls-min-version")
@pytest.mark.parametrize(("given", "oldest"), [("", OLD), ("VersionTLS12", OLD), ("VersionTLS13", NEW)])
async def test_tls_min_version_refuses_older_clients(given, oldest):
    async with serving(f"--tls-min-version={given}") as made:
        await visit(made, NEW)
        if oldest is OLD:
            await visit(made, OLD)
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await visit(made, OLD)


@pytest.mark.flag("tls-min-version")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
@pytest.mark.parametrize("ciphers", ["", f"--tls-cipher-suites={AES},TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"])
async def test_insecure_tls_version_is_served_with_warning(ciphers):
    loose = "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"
    oldest, older = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with structlog.testing.capture_logs() as lines:
        async with serving("--tls-min-version=VersionTLS11", *filter(None, [ciphers])) as made:
            assert (await visit(made, older, ciphers=loose))[1] == "ECDHE-ECDSA-AES128-SHA"
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await visit(made, oldest, ciphers=loose)
    (warning,) = [line for line in lines if line["log_level"] == "warning"]
    assert warning["oldest"] == "VersionTLS11"
    async with serving("--tls-min-version=VersionTLS10") as made:
        await visit(made, oldest, ciphers=loose)


@pytest.mark.flag("tls-cipher-suites")
async def test_cipher_suites_flag_sets_negotiated_suite():
    both = "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256"
    for given, agreed in ((AES, "ECDHE-ECDSA-AES128-GCM-SHA256"), (CHACHA, "ECDHE-ECDSA-CHACHA20-POLY1305")):
        async with serving(f"--tls-cipher-suites={given},TLS_AES_128_GCM_SHA256") as made:
            assert (await visit(made, OLD, ciphers=both))[1] == agreed
            assert (await visit(made, NEW))[1] == "TLS_AES_256_GCM_SHA384"
    async with serving("--tls-cipher-suites=TLS_AES_128_GCM_SHA256") as made:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await visit(made, OLD)


def test_insecure_cipher_suites_are_logged():
    with structlog.testing.capture_logs() as lines:
        server(f"--tls-cipher-suites={AES}")
        assert not lines
        server(f"--tls-cipher-suites={AES},TLS_RSA_WITH_AES_128_CBC_SHA,TLS_RSA_WITH_RC4_128_SHA")
    insecure, missing = (line["suites"] for line in lines)
    assert insecure == ("TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_RC4_128_SHA")
    assert missing == ("TLS_RSA_WITH_RC4_128_SHA",)


@pytest.mark.flag("http2-max-streams-per-connection", "disable-http2-serving")
@pytest.mark.parametrize(
    ("argv", "warned"),
    [
        ((), False),
        (("--http2-max-streams-per-connection=100",), True),
        (("--http2-max-streams-per-connection=100", "--disable-http2-serving"), False),
        (("--disable-http2-serving",), False),
    ],
)
async def test_http2_flags_log_warning_and_http1_is_served(argv, warned):
    with structlog.testing.capture_logs() as lines:
        async with serving(*argv) as made:
            assert (await visit(made))[2] == "http/1.1"
    assert [("--http2-max-streams-per-connection" in line["event"], line["log_level"]) for line in lines] == (
        [(True, "warning")] if warned else []
    )


@pytest.mark.flag("permit-port-sharing")
async def test_port_is_shared_if_all_processes_permit_it():
    port = f"--secure-port={free_port()}"
    async with serving(port, "--permit-port-sharing"), serving(port, "--permit-port-sharing"):
        with pytest.raises(CannotListen, match="address already in use"):
            async with serving(port):
                pass


@pytest.mark.flag("permit-address-sharing")
@pytest.mark.parametrize("argv", [(), ("--permit-address-sharing",), ("--permit-address-sharing=false",)])
async def test_restart_binds_beside_lingering_connections(argv):
    where = (f"--secure-port={free_port()}", "--bind-address=127.0.0.1")
    async with serving(*where) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    await reader.read()
    writer.close()
    async with serving(*where, *argv) as made:
        assert (await visit(made))[2] == "http/1.1"
        with pytest.raises(CannotListen, match="address already in use"):
            async with serving(*where, *argv):
                pass


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (
            ("--cert-dir={tmp}/file/below",),
            "--cert-dir: the self-signed certificate in {tmp}/file/below cannot be served",
        ),
        (
            ("--tls-cert-file={tmp}/file", "--tls-private-key-file={tmp}/none"),
            "--tls-cert-file and --tls-private-key-file: {tmp}/file and {tmp}/none cannot be served: {tmp}/none: no ",
        ),
        (
            ("--tls-sni-cert-key={tmp}/file,{tmp}/file",),
            "--tls-sni-cert-key: {tmp}/file and {tmp}/file cannot be served: they are no pair in PEM",
        ),
    ],
)
def test_unusable_files_are_refused_with_flag_name(tmp_path, argv, problem):
    (tmp_path / "file").write_text("hello")
    with pytest.raises(CannotStart) as caught:
        server(*(one.format(tmp=tmp_path) for one in argv))
    assert str(caught.value).startswith(problem.format(tmp=tmp_path))


@pytest.mark.parametrize("file", ["none", "file"])
def test_unusable_client_ca_is_refused_with_flag_name(tmp_path, file):
    (tmp_path / "file").write_text("hello")
    with pytest.raises(CannotStart, match=f"--client-ca-file: {tmp_path}/{file} holds no certificates"):
        server(client_ca_file=f"{tmp_path}/{file}")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--bind-address=localhost", "--bind-address"),
        ("--secure-port=65536", "--secure-port"),
        ("--tls-cert-file=a", "--tls-cert-file and --tls-private-key-file must be given together"),
        ("--tls-private-key-file=a", "--tls-cert-file and --tls-private-key-file must be given together"),
        ("--tls-sni-cert-key=a", "--tls-sni-cert-key"),
        ("--tls-sni-cert-key=a,b,c", "--tls-sni-cert-key"),
        ("--tls-sni-cert-key=a,b:", "--tls-sni-cert-key"),
        ("--tls-sni-cert-key=a,:b", "--tls-sni-cert-key"),
        ("--tls-min-version=1.2", "must be VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13"),
        ("--tls-cipher-suites=AES128-SHA", "AES128-SHA is no cipher suite: known are TLS_AES_128_GCM_SHA256, "),
        ("--tls-cipher-suites=AES128-SHA", CHACHA),
        ("--http2-max-streams-per-connection=-1", "--http2-max-streams-per-connection"),
    ],
)
def test_invalid_serving_flags_are_refused(argv, words):
    with pytest.raises(FlagError) as caught:
        flags(argv)
    (problem,) = caught.value.problems
    assert words in problem
    assert argv.partition("=")[0] in problem
    assert "\n" not in problem


def test_sni_pairs_round_trip():
    given = ("--tls-sni-cert-key=a,b", "--tls-sni-cert-key=c,d:*.e,::1")
    (flag,) = [one for one in flags_of(ServingOptions) if one.name == "tls-sni-cert-key"]
    assert flag.type.format(flags(*given).tls_sni_cert_key) == "a,b;c,d:*.e,::1"
    assert flag.type.format(()) == ""
