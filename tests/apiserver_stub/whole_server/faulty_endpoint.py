"""A server over TLS on loopback that can hang, answer wrongly, die and recover."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.apiserver_stub.webhooks.webhook_server import self_signed

Tree = dict[str, Any]
Answer = Callable[[str, Tree], Tree]
"""The answer of a healthy endpoint to a document at a path."""

PIECE = b" " * (64 << 10)
WELL, GENEROUS = "well", "/generous"
ROOT = {"username": "root", "groups": ["system:masters"]}
EVERYTHING = {"allowed": True, "authenticated": True, "user": ROOT, "denied": False}


def _review(review: Tree, **fields: Any) -> bytes:
    return json.dumps({**review, "status": EVERYTHING, **fields}).encode()


LIES: Mapping[str, Callable[[Tree], tuple[int, bytes]]] = {
    "no JSON": lambda _: (200, b'{"status": {"allowed": true, "authenticated": true}'),
    "text": lambda _: (200, b"hello"),
    "nothing": lambda _: (200, b""),
    "a list": lambda review: (200, b"[" + _review(review) + b"]"),
    "another kind": lambda review: (200, _review(review, kind="Pod")),
    "another version": lambda review: (200, _review(review, apiVersion="authorization.k8s.io/v0")),
    "other types": lambda review: (200, _review(review, status={"allowed": "yes", "authenticated": 1, "user": "root"})),
    "a user without a name": lambda review: (
        200,
        _review(review, status={"authenticated": True, "user": {}, "allowed": 1}),
    ),
    "a refusal that allows": lambda review: (403, _review(review)),
    "an error that allows": lambda review: (500, _review(review)),
    "a redirect": lambda _: (307, b""),
    "another issuer": lambda _: (
        200,
        json.dumps({"kind": "Other", "issuer": "https://evil", "jwks_uri": "https://evil"}).encode(),
    ),
}
FAULTS = ("hang", "drip", "megabytes", "no HTTP", "reset", "refuse", *LIES)


class Endpoint:
    """Answers with `answer` while it is `WELL`, else with one of `FAULTS`; counts connections and bytes."""

    def __init__(self, folder: Path, name: str, answer: Answer) -> None:
        self.name = name
        self.fault = WELL
        self.port = 0
        self.asked = self.open = self.most_open = self.most_sent = self.generous = 0
        self._answer = answer
        certificate, key = self_signed("127.0.0.1")
        self.ca = certificate.decode()
        self._kubeconfig = folder / f"{name}.kubeconfig"
        pem = folder / f"{name}.pem"
        pem.write_bytes(certificate + key)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(pem)
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig file for this endpoint."""
        server = {"server": self.url, "certificate-authority-data": b64encode(self.ca.encode()).decode()}
        tree = {
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self._kubeconfig.write_text(json.dumps(tree))
        return str(self._kubeconfig)

    async def become(self, fault: str) -> None:
        """Switch to another fault, or recover; some faults close every connection."""
        self.fault = fault
        if fault == "refuse":
            self._close()
        elif self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]

    async def end(self) -> None:
        """Stop the server and its connections."""
        self._close()
        if self._serving:
            await asyncio.wait(self._serving)

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._serving.values():
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            with suppress(OSError, EOFError, ssl.SSLError):
                while True:
                    await self._exchange(reader, writer)
        finally:
            self.open -= 1
            del self._serving[task]
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        path = head.split(" ")[1]
        length = head.partition("content-length:")[2].partition("\r\n")[0].strip()
        document = json.loads(await reader.readexactly(int(length))) if length else {}
        self.asked += 1
        if path.startswith(GENEROUS):
            self.generous += 1
            await self._respond(writer, 200, _review(document))
        elif self.fault in LIES:
            status, body = LIES[self.fault](document)
            if status == 200 and document:
                self._answer(path, document)  # sending the document was the whole answer
            await self._respond(writer, status, body)
        elif self.fault == WELL:
            await self._respond(writer, 200, json.dumps(self._answer(path, document)).encode())
        else:
            await self._break(reader, writer)

    async def _break(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Behave as the fault says; never return."""
        if self.fault == "no HTTP":
            writer.write(b"\x16\x03\x01 what?\r\n\r\n")
            await writer.drain()
        elif self.fault in ("drip", "megabytes"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
            piece, sent = PIECE if self.fault == "megabytes" else b" ", 0
            pause = 0 if self.fault == "megabytes" else 1
            while not reader.at_eof():
                writer.write(piece)
                sent += len(piece)
                self.most_sent = max(self.most_sent, sent)
                await writer.drain()
                await asyncio.sleep(pause)
        elif self.fault == "hang":
            await reader.read()
        raise EOFError

    async def _respond(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        location = f"location: {self.url}{GENEROUS}\r\n" if status == 307 else ""
        writer.write(f"{head}{location}\r\n".encode() + body)
        await writer.drain()
