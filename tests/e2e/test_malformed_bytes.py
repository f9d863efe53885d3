"""Malformed requests on a TLS connection are rejected or not read, and change nothing."""

import asyncio
import base64
import gzip
import json
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.e2e

PATH = "/api/v1/namespaces/default/configmaps"
BODY = json.dumps({"metadata": {"name": "never-made"}, "data": {"k": "v"}}).encode()
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
SLOW = 60.0

Exchange = Callable[..., bytes]


def request(method: str = "POST", target: str = PATH, body: bytes = BODY, **headers: str) -> bytes:
    """A request as bytes, possibly malformed."""
    fields = {"Host": "x", "Content-Type": "application/json", "Content-Length": str(len(body))}
    fields |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + body


SOUND = request()


@pytest.fixture(scope="module")
def context(server: Any, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """TLS as the admin of the shared server."""
    content = yaml.safe_load(Path(server.kubeconfig).read_text())
    found = content["clusters"][0]["cluster"] | content["users"][0]["user"]
    folder = tmp_path_factory.mktemp("trust")
    for part in ("certificate-authority", "client-certificate", "client-key"):
        (folder / part).write_bytes(base64.b64decode(found[f"{part}-data"]))
    made = ssl.create_default_context(cafile=str(folder / "certificate-authority"))
    made.load_cert_chain(folder / "client-certificate", folder / "client-key")
    return made


@pytest.fixture(scope="module")
def exchange(server: Any, context: ssl.SSLContext) -> Iterator[Exchange]:
    """Send bytes on a new connection; return what comes until the server closes it or is silent for this time."""
    with asyncio.Runner() as runner:

        async def talk(data: bytes, patience: float) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            answer = b""
            try:
                writer.write(data)
                while chunk := await asyncio.wait_for(reader.read(1 << 20), patience):
                    answer += chunk
            except (ConnectionError, TimeoutError):
                pass
            finally:
                writer.close()
            return answer

        yield lambda data, patience=30.0: runner.run(talk(data, patience))


@pytest.fixture
def names(exchange: Exchange) -> Callable[[], list[str]]:
    """Return the names of the objects of a kind, which also shows that the server still answers."""

    def ask() -> list[str]:
        answer = exchange(request("GET", PATH, b"", connection="close"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), answer
        return [item["metadata"]["name"] for item in json.loads(body)["items"]]

    return ask


def codes(answer: bytes) -> list[int]:
    return [int(code) for code in STATUS_LINE.findall(answer)]


# A valid request, after whose answer the connection is closed.
LAST = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x16\x03\x01\x00\xff", 400),
        (b"hello\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n", 400),
        (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (request(content_length="-5"), 400),
        (request(content_length="many"), 400),
        (request(content_length="5, 6"), 400),
        (request(transfer_encoding="chunked"), 400),
        (request(body=b"zz\r\n" + BODY, transfer_encoding="chunked").replace(b"Content-Length", b"X-Length"), 400),
        (request(body=gzip.compress(BODY), content_encoding="gzip"), 400),
        (request(target="/%zz/%00"), 400),
        (request("GET", "/api/v1/namespaces/%2e%2e/pods/..%2f..", b""), 400),
        (request("GET", "//api//v1//pods", b""), 404),
        (request("GET", "http://elsewhere/api/v1/dreams", b""), 404),
        (request("GET", "/api/v1/pods?%ff=%fe&&==&labelSelector=%00", b""), 400),
        (request("GET", "*", b""), 400),
        (request(content_type="application/\udcff"), 415),
        (request(accept="text/\udcff"), 406),
        (request(content_length=str(10**12)), 413),
        (request(body=b"[" * 1_000_000), 413),
        (request(body=b" " * (3 << 20) + b"x"), 413),
    ],
)  # fmt: skip
def test_malformed_request_is_rejected(exchange: Exchange, names: Any, data: bytes, code: int) -> None:
    before = names()
    answer = exchange(data + LAST)
    assert codes(answer)[:1] == [code], answer
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length, head
    status = json.loads(body[: int(length[1])])
    assert (status["kind"], status["code"], status["status"]) == ("Status", code, "Failure")
    assert names() == before


def test_large_body_of_unknown_caller_is_not_read(server: Any) -> None:
    async def knock() -> bytes:
        stranger = ssl.create_default_context()
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=stranger)
        writer.write(SOUND)
        async with asyncio.timeout(SLOW):
            answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return answer

    assert codes(asyncio.run(knock())) == [401]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.integers(0, 5),
            st.binary(max_size=4) | st.sampled_from([b"\r\n", b"\n", b"\x00", b":", b" ", b"%", b"\xff", b"\r\n\r\n"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_changed_request_gets_no_server_error(exchange: Exchange, harm: list[tuple[float, int, bytes]]) -> None:
    """No input makes the server fail, and it continues to answer."""
    data = bytearray(SOUND)
    for where, cut, insert in harm:
        at = int(len(data) * where)
        data[at : at + cut] = insert
    answer = exchange(bytes(data) + LAST, patience=0.2)
    assert all(200 <= code < 500 for code in codes(answer)), answer


def test_truncated_requests_change_nothing(
    server: Any, context: ssl.SSLContext, exchange: Exchange, names: Any
) -> None:
    async def begin(end: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        writer.write(request(body=BODY.replace(b"never", b"half"))[:end])
        writer.close()
        await writer.wait_closed()

    before = names()
    for end in range(1, len(SOUND) - 1, 5):
        asyncio.run(begin(end))
    assert names() == before
    answer = exchange(request("GET", f"{PATH}/half-made", b"", connection="close"))
    assert codes(answer) == [404]
