"""The audit of requests at level Metadata, with a log in the mode `blocking`: what it leaves of the speed of a GET. The
ceiling is the same server without a policy.
"""

import contextlib
import itertools
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from benchmarks.api import in_turn
from benchmarks.harness import TOKEN, Result, api_server, connect, fill, process
from benchmarks.load import per_second, request

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"
PORT, AUDITED = 16445, 16446


async def run() -> list[Result]:
    """GET of one 3 KB object, 16 callers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "policy.yaml").write_text(POLICY)
        flags = (f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={folder / 'audit.log'}")
        for each in ("plain", "audited"):
            (folder / each).mkdir()
        async with _server(folder / "plain", PORT) as plain, _server(folder / "audited", AUDITED, *flags) as audited:
            mine, top, ratio = await in_turn(audited, plain)
    return [Result("GET with an audit at Metadata", f"{mine:,.0f}/s", f"{top:,.0f}/s", ratio, 0.8)]


@contextlib.asynccontextmanager
async def _server(folder: Path, port: int, *flags: str) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """An API server; what it is used for is measured by calling what is returned."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with process(*api_server(folder, port, *flags), log=folder / "server.log"):
        connection = await connect(port, tls)
        await fill(connection, 1)
        connection.close()
        line = request("GET", "/api/v1/namespaces/default/pods/pod-0", TOKEN)
        yield lambda: per_second(port, tls, lambda: itertools.repeat(line), connections=16, count=6000)
