"""Lists in protobuf against the bare server with the same TLS, sending the same bytes."""

import itertools
import tempfile
from pathlib import Path

from benchmarks.api import PODS, Measure, in_turn
from benchmarks.harness import LIST_SIZE, TOKEN, Pair, Result, ceiling, connect, dechunk, pair
from benchmarks.load import per_second, request

MEDIA_TYPE = b"application/vnd.kubernetes.protobuf"
PORT = 16445


async def run() -> list[Result]:
    """The one figure, from a pair of servers and a ceiling of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with pair(folder) as both:
            return [await list_(both, folder)]


async def list_(both: Pair, folder: Path) -> Result:
    """LIST of 5,000 objects, one caller, after the first such list."""
    line = request("GET", PODS, TOKEN).replace(b"application/json", MEDIA_TYPE)
    connection = await connect(both.port, both.tls)
    connection.keep = True
    status, _, body = await connection.ask(line)
    connection.close()
    if status != 200 or not dechunk(body).startswith(b"k8s\0"):
        raise RuntimeError(f"a list in protobuf was answered {status}: {body[:300]!r}")
    (folder / "list.json").write_bytes(dechunk(body))

    def measure(port: int, line: bytes) -> Measure:
        return lambda: per_second(port, both.tls, lambda: itertools.repeat(line), connections=1, count=40)

    with ceiling(folder, PORT):
        (await connect(PORT, both.tls)).close()
        mine, top, ratio = await in_turn(measure(both.port, line), measure(PORT, request("GET", "/list", TOKEN)))
    return Result(f"protobuf LIST of {LIST_SIZE:,} objects", f"{mine:.1f}/s", f"{top:.1f}/s", ratio, 0.8)
