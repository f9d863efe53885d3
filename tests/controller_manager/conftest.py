"""A fake API on the in-process transport with configurable faults; it stores documents by path."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import structlog

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.log import get_logger
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, TransportError

get_logger("tests")  # must run before log capturing, which assumes that structlog is configured

JSON = {"content-type": "application/json"}
Tree = dict[str, Any]


def status(code: int, reason: str, message: str = "refused") -> Response:
    return Response(code, JSON, json.dumps(_status(code, reason, message)).encode())


def _status(code: int, reason: str, message: str) -> Tree:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


class FakeApi:
    """Stores documents by path, and the log of their changes.

    `streams` offers streaming lists, `bookmarks` are the seconds between two bookmarks, `before(request)` may refuse or
    delay a request, `after(request, response)` may lose a response.
    """

    def __init__(self) -> None:
        self.revision = 100
        self.oldest = 0
        self.objects: dict[str, Tree] = {}
        self.log: list[tuple[int, str, str, Tree]] = []
        self.streams = True
        self.bookmarks = 60.0
        self.mute = False
        self.requests: list[Request] = []
        self.before: Callable[[Request], Any] | None = None
        self.after: Callable[[Request, Response], Any] | None = None
        self._connection = asyncio.Event()
        self._changed = asyncio.Event()

    def client(self, **options: Any) -> Client:
        return Client(InProcessTransport(self.handle), **options)

    def put(self, path: str, **fields: Any) -> Tree:
        """Create or replace a document, like another client."""
        before = self.objects.get(path)
        self.revision += 1
        *_, name = path.split("/")
        metadata: Tree = {"uid": f"uid-{self.revision}", **fields.pop("metadata", {}), "name": name}
        namespace, _, rest = path.partition("/namespaces/")[2].partition("/")
        if rest:
            metadata["namespace"] = namespace
        if before is not None:
            metadata["uid"] = before["metadata"]["uid"]
        metadata["resourceVersion"] = str(self.revision)
        obj = {**fields, "metadata": metadata}
        self._log("MODIFIED" if before else "ADDED", path, obj)
        self.objects[path] = obj
        return obj

    def drop(self, path: str) -> Tree:
        """Delete a document."""
        obj = self.objects.pop(path)
        self.revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        self._log("DELETED", path, obj)
        return obj

    def compact(self) -> None:
        """Forget the history."""
        self.oldest = self.revision

    def hang_up(self) -> None:
        """Break every open watch."""
        self._connection.set()
        self._connection = asyncio.Event()
        self._wake()

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        if self.before is not None:
            refused = self.before(request)
            refused = await refused if asyncio.iscoroutine(refused) else refused
            if refused is not None:
                return refused
        response = self._answer(request)
        if self.after is not None:
            result = self.after(request, response)
            if asyncio.iscoroutine(result):
                await result
        return response

    def _answer(self, request: Request) -> Response:
        query = dict(request.query)
        if request.method == "POST":
            name = json.loads(request.body)["metadata"]["name"]
            path = f"{request.path}/{name}"
            if path in self.objects:
                return status(409, "AlreadyExists")
            return self._one(self.put(path, **json.loads(request.body)))
        if request.method == "GET" and "watch" in query:
            return self._watch(request.path, query)
        if request.method == "GET" and request.path not in self.objects and self._is_collection(request.path):
            return self._list(request.path, query)
        found = self.objects.get(request.path)
        if found is None:
            return status(404, "NotFound")
        if request.method == "PUT":
            body = json.loads(request.body)
            version = body["metadata"].get("resourceVersion", "")
            if version and version != found["metadata"]["resourceVersion"]:
                return status(409, "Conflict")
            return self._one(self.put(request.path, **body))
        return self._one(self.drop(request.path) if request.method == "DELETE" else found)

    @staticmethod
    def _is_collection(path: str) -> bool:
        return path.rsplit("/", 1)[1].endswith("s")

    @staticmethod
    def _one(obj: Tree) -> Response:
        return Response(200, JSON, json.dumps(obj).encode())

    def _within(self, collection: str, path: str) -> bool:
        root, plural = collection.rsplit("/", 1)
        return path.startswith(f"{root}/") and path.split("/")[-2] == plural

    def _list(self, path: str, query: dict[str, str]) -> Response:
        token = query.get("continue", "")
        revision, start = (int(part) for part in token.split(":")) if token else (self.revision, 0)
        if revision < self.oldest:
            return status(410, "Expired")
        items = [obj for name, obj in sorted(self.objects.items()) if self._within(path, name)]
        end = start + (int(query.get("limit", "0")) or len(items))
        metadata = {"resourceVersion": str(revision), "continue": f"{revision}:{end}" if end < len(items) else ""}
        return Response(200, JSON, json.dumps({"metadata": metadata, "items": items[start:end]}).encode())

    def _watch(self, path: str, query: dict[str, str]) -> Response:
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.streams:
            return status(422, "Invalid", "sendInitialEvents: not offered")
        return Response(200, JSON, self._events(path, initial, int(query.get("resourceVersion", "0"))))

    async def _events(self, path: str, initial: bool, revision: int) -> AsyncIterator[bytes]:
        connection = self._connection
        if initial:
            revision = self.revision
            for name, obj in sorted(self.objects.items()):
                if self._within(path, name):
                    yield _line("ADDED", obj)
            yield _bookmark(revision, {"k8s.io/initial-events-end": "true"})
        quiet = False
        while True:
            if revision < self.oldest:
                yield _line("ERROR", _status(410, "Expired", "too old resource version"))
                return
            if not self.mute:
                upto = self.revision
                for at, kind, name, obj in tuple(self.log):
                    if revision < at <= upto and self._within(path, name):
                        yield _line(kind, obj)
                revision = upto
                if quiet:
                    yield _bookmark(revision, {})
            quiet = await self._nothing_happens()
            if connection.is_set():
                raise TransportError("hung up")

    async def _nothing_happens(self) -> bool:
        try:
            async with asyncio.timeout(self.bookmarks):
                await self._changed.wait()
        except TimeoutError:
            return True
        return False

    def _log(self, kind: str, path: str, obj: Tree) -> None:
        self.log.append((self.revision, kind, path, obj))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _line(kind: str, obj: Tree) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def _bookmark(revision: int, annotations: Tree) -> bytes:
    return _line("BOOKMARK", {"metadata": {"resourceVersion": str(revision), "annotations": annotations}})


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture(scope="session")
def make_api() -> type[FakeApi]:
    """Return a function that creates fake APIs, for tests that need several."""
    return FakeApi


@pytest.fixture
def refusal() -> Callable[..., Response]:
    """Return a function that builds an error response from code, reason and message."""
    return status


@pytest.fixture
def own_logs() -> Iterator[None]:
    """Restore the logging configuration after the test."""
    before, configured, root = structlog.get_config(), structlog.is_configured(), logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    structlog.reset_defaults()
    if configured:
        structlog.configure(**before)
    root.setLevel(level)
    root.handlers[:] = handlers
