"""Logging flags, and that log lines contain no secrets."""

import asyncio
import base64
import json
import ssl
from pathlib import Path

import pytest
import yaml

from apiserver_stub.common.flags import FLAGS as SERVER_FLAGS
from apiserver_stub.process.build import build
from controller_manager.app.clients import HttpNetwork
from controller_manager.app.features import ManagerFeatureOptions
from controller_manager.app.manager import Manager
from controller_manager.app.program import flag_set
from controller_manager.common.api.core import NAMESPACES
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.component.options import LoggingOptions, logs_allowed
from controller_manager.common.component.process import configure_logs, unhandled
from controller_manager.common.options.flag import Options
from controller_manager.common.options.parse import FlagError, FlagSet
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.transport import Credential
from controller_manager.framework import Context, ControllerSpec, For
from controller_manager.testing import FaultyNetwork

pytestmark = pytest.mark.usefixtures("own_logs")

FLAGS = FlagSet(LoggingOptions, ManagerFeatureOptions, checks=(logs_allowed,))
ALPHA = "--feature-gates=LoggingAlphaOptions=true"

WORD = "pa55w0rd-of-the-test"
TOKEN = f"eyJhbGciOiJSUzI1NiJ9.{base64.urlsafe_b64encode(WORD.encode()).decode()}.c2lnbmF0dXJl"
SECRETS = (WORD, TOKEN, base64.b64encode(WORD.encode()).decode())


async def test_closed_tls_connection_is_not_logged_as_warning(capsys: pytest.CaptureFixture[str]) -> None:
    begin()
    loop = asyncio.get_running_loop()
    ended = {"message": "SSL error", "exception": ssl.SSLError("application data after close notify")}
    unhandled(loop, ended)
    assert capsys.readouterr().err == ""
    begin("--v=4")
    unhandled(loop, ended)
    assert "after close notify" in capsys.readouterr().err
    unhandled(loop, {"message": "a callback failed", "exception": ValueError("wrong")})
    unhandled(loop, {"message": "never retrieved", "exception": OSError("lost"), "task": None})
    logged = capsys.readouterr().err
    assert "ValueError: wrong" in logged
    assert "OSError: lost" in logged


def begin(*argv: str) -> None:
    configure_logs(FLAGS.parse(argv))


def problem(*argv: str) -> str:
    with pytest.raises(FlagError) as caught:
        FLAGS.parse(argv)
    (one,) = caught.value.problems
    return one


@pytest.mark.flag("v")
@pytest.mark.parametrize(
    ("argv", "logged"),
    [((), 0), (("-v=3",), 0), (("-v4",), 1), (("--v=6",), 2), (("-v", "9"), 2)],
)
def test_v_flag_sets_log_level(argv, logged, capsys):
    begin(*argv)
    capsys.readouterr()
    get_logger("test").debug("reconciled")
    get_logger("test").debug("Response", v=6)
    assert len(capsys.readouterr().err.splitlines()) == logged


@pytest.mark.flag("v")
def test_flags_are_logged_from_level_1(capsys):
    begin("--v=0")
    assert capsys.readouterr().err == ""
    begin("-v=1", "--vmodule=loop=5,work/*=6")
    logged = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert 'FLAG: --log-flush-frequency="5s"' in logged
    assert 'FLAG: --vmodule="loop=5,work/*=6"' in logged
    assert logged == sorted(logged)


@pytest.mark.flag("vmodule")
def test_vmodule_raises_level_per_file(capsys):
    for patterns, logged in (("test_logs=4", True), ("app/*=4,", True), ("other=9", False), ("*s=3", False)):
        begin(f"--vmodule={patterns}")
        get_logger("test").debug("reconciled")
        assert ("reconciled" in capsys.readouterr().err) is logged


@pytest.mark.parametrize("wrong", ["loop", "loop=", "=3", "loop=-1", "loop=x", "loop=3=4", "loop=2147483648"])
def test_vmodule_pattern_without_level_is_refused(wrong):
    assert problem(f"--vmodule={wrong}").startswith(f"--vmodule: {wrong!r} is not of the form pattern=N")


@pytest.mark.flag("logging-format")
def test_logging_format_is_text_or_json(capsys):
    begin()
    get_logger("test").info("said", port=1)
    assert capsys.readouterr().err.endswith('] "said" logger="test" port=1\n')
    begin("--logging-format=json")
    get_logger("test").info("said", port=1)
    line = json.loads(capsys.readouterr().err)
    assert (line["msg"], line["v"], line["port"]) == ("said", 0, 1)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("--logging-format=xml",), "--logging-format: must be text or json, got 'xml'"),
        (
            ("--logging-format=json", "--feature-gates=LoggingBetaOptions=false"),
            "--logging-format=json needs --feature-gates=LoggingBetaOptions=true",
        ),
        (("--logging-format=json", "--vmodule=a=1"), "--vmodule can only be used with --logging-format=text"),
        (("--log-text-split-stream",), "--log-text-split-stream needs --feature-gates=LoggingAlphaOptions=true"),
        (
            ("--log-text-info-buffer-size=1Ki",),
            "--log-text-info-buffer-size needs --feature-gates=LoggingAlphaOptions=true",
        ),
        (("--log-flush-frequency=-1s",), "--log-flush-frequency: must be at least 0s, got '-1s'"),
    ],
)
def test_invalid_log_flags_are_refused(argv, sentence):
    assert problem(*argv) == sentence


@pytest.mark.flag("log-text-split-stream")
def test_split_streams_write_info_to_stdout(capsys):
    begin(ALPHA, "--log-text-split-stream")
    log = get_logger("test")
    log.info("fine")
    log.warning("odd")
    log.error("bad")
    out, err = capsys.readouterr()
    assert ("fine" in out, len(out.splitlines())) == (True, 1)
    assert [word in err for word in ("odd", "bad")] == [True, True]


@pytest.mark.virtual
@pytest.mark.flag("log-text-info-buffer-size", "log-flush-frequency")
@pytest.mark.parametrize(("frequency", "flushed"), [("1s", True), ("10s", False)])
async def test_info_lines_are_buffered_and_flushed(frequency, flushed, capsys):
    begin(ALPHA, "--log-text-split-stream", "--log-text-info-buffer-size=1Ki", f"--log-flush-frequency={frequency}")
    log = get_logger("test")
    log.info("first")
    log.error("bad")
    out, err = capsys.readouterr()
    assert (out, "bad" in err) == ("", True)
    await asyncio.sleep(2)
    assert ("first" in capsys.readouterr().out) is flushed
    for number in range(20):
        log.info("another", number=number)
    logged = capsys.readouterr().out
    assert "number=0\n" in logged
    assert "number=19\n" not in logged


class NoOptions(Options):
    pass


class Careless:
    """Fails in every way that could leak secrets."""

    def __init__(self, context: Context, options: NoOptions) -> None:
        self.context = context

    async def reconcile(self, key: Key) -> None:
        password = {"password": WORD, "token": TOKEN}
        try:
            raise PermissionError(f"401 for Authorization: Bearer {TOKEN}")
        except PermissionError as error:
            raise RuntimeError(f"{len(password)} secrets, https://admin:{WORD}@registry") from error


SPECS = (
    ControllerSpec(name="careless-controller", reconciler=Careless, options=NoOptions, watches=(For(NAMESPACES),)),
)


@pytest.mark.virtual
@pytest.mark.parametrize("form", ["text", "json"])
async def test_running_manager_logs_no_secret(form, tmp_path, capsys):
    """Secrets occur as tokens in headers and queries, and in errors of controllers."""
    (tmp_path / "tokens").write_text(f"{TOKEN},manager,1,system:masters\n{WORD},other,2\n")
    argv = ["--storage-backend=memory", f"--token-auth-file={tmp_path / 'tokens'}"]
    flags = flag_set(SPECS).parse(
        ["--secure-port=0", "-v=10", f"--logging-format={form}", f"--master=https://a:{WORD}@b"]
    )
    configure_logs(flags)
    api = build(SERVER_FLAGS.parse(argv), Runtime("api"))
    await api.start()

    async def obtain(*_):
        return Credential(token=TOKEN)

    network = FaultyNetwork(lambda given: InProcessTransport(api.handle, obtain=given or obtain), 0.05)
    manager = Manager(flags, SPECS, network, Runtime("manager"))
    async with asyncio.TaskGroup() as group:
        life = group.create_task(manager.run())
        for path in ("/metrics", "/configz", "/nowhere"):
            headers = {"authorization": f"Bearer {WORD}", "cookie": WORD}
            await manager.pages.handle(Request("GET", path, (("token", WORD),), headers=headers))
            await api.handle(Request("GET", path, (("token", WORD),), headers=headers))
        await asyncio.sleep(60)
        manager.stop("done")
        await life
    await api.stop()
    logged = "".join(capsys.readouterr())
    assert logged.count("reconcile failed") > 3
    assert logged.count("Response") > 10
    assert "--master=" in logged
    assert [secret for secret in SECRETS if secret in logged] == []


async def test_response_of_server_is_not_logged(tmp_path: Path, capsys):
    """A kubeconfig has a token, a proxy URL has a password, and the server refuses, echoes or sends garbage."""
    asked: list[bytes] = []
    enough = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        body = b"refused: " + asked[-1] if len(asked) % 3 else b""
        head = f"HTTP/1.1 {(500, 401, 403)[len(asked) % 3]} No\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body if body else b"nonsense\r\n\r\n")
        writer.close()
        if len(asked) % 4 == 0:
            enough.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for name, proxy in (("direct", ""), ("proxied", f"http://me:{WORD}@127.0.0.1:{port}")):
        argv = ["--secure-port=0", "-v=10", "--leader-elect-retry-period=100ms"]
        argv.append(f"--kubeconfig={_kubeconfig(tmp_path / name, port, proxy)}")
        flags = flag_set(()).parse(argv)
        configure_logs(flags)
        manager = Manager(flags, (), HttpNetwork(), Runtime("manager"))
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            async with asyncio.timeout(60):
                await enough.wait()
            enough.clear()
            manager.stop("done")
    server.close()
    logged = "".join(capsys.readouterr())
    assert "can't reach the lease" in logged
    assert str(tmp_path / "direct") in logged
    assert any(TOKEN.encode() in request for request in asked)
    assert [secret for secret in SECRETS if secret in logged] == []


def _kubeconfig(path: Path, port: int, proxy: str) -> Path:
    cluster = {"server": f"http://127.0.0.1:{port}", **({"proxy-url": proxy} if proxy else {})}
    tree = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    path.write_text(yaml.safe_dump(tree))
    return path
