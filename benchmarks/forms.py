"""Lists in other forms than JSON against the bare server with the same TLS, sending the same bytes."""

import itertools
import tempfile
from pathlib import Path

from benchmarks.api import PODS, Measure, in_turn
from benchmarks.harness import LIST_SIZE, TOKEN, Pair, Result, ceiling, connect, dechunk, pair
from benchmarks.load import per_second, request

# Title, media type, how such a list begins, calls per round, aim.
FORMS = (
    ("protobuf LIST", b"application/vnd.kubernetes.protobuf", b"k8s\0", 40, 0.8),
    ("Table LIST", b"application/json;as=Table;g=meta.k8s.io;v=v1", b'{"kind":"Table"', 4, 0.35),
)
PORT = 16445


async def run() -> list[Result]:
    """One figure for each form, each from a ceiling of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with pair(folder) as both:
            return [await list_(both, folder, PORT + number, *form) for number, form in enumerate(FORMS)]


async def list_(
    both: Pair, folder: Path, port: int, title: str, media: bytes, beginning: bytes, count: int, aim: float
) -> Result:
    """LIST of 5,000 objects, one caller, after the first such list."""
    line = request("GET", PODS, TOKEN).replace(b"application/json", media)
    connection = await connect(both.port, both.tls)
    connection.keep = True
    status, _, body = await connection.ask(line)
    connection.close()
    if status != 200 or not dechunk(body).startswith(beginning):
        raise RuntimeError(f"a {title} was answered {status}: {body[:300]!r}")
    (folder / "list.json").write_bytes(dechunk(body))

    def measure(port: int, line: bytes) -> Measure:
        return lambda: per_second(port, both.tls, lambda: itertools.repeat(line), connections=1, count=count)

    with ceiling(folder, port):
        (await connect(port, both.tls)).close()
        mine, top, ratio = await in_turn(measure(both.port, line), measure(port, request("GET", "/list", TOKEN)))
    return Result(f"{title} of {LIST_SIZE:,} objects", f"{mine:.1f}/s", f"{top:.1f}/s", ratio, aim)
