"""The kubelet API of virtual nodes: simulated logs. Exec, attach and port-forward are rejected."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from controller_manager.common.api.errors import ApiError, BadRequest
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base import clock
from controller_manager.common.serving.certificates import Contexts, SelfSigned
from controller_manager.common.serving.http import refusal
from controller_manager.common.serving.http_server import CannotListen, HTTPServer

from .logs import ContainerRun, Line, LogOptions, log_of, log_options, run_of
from .pods import VirtualPod

__all__ = ["CannotListen", "KubeletAPI"]

_TEXT = {"content-type": "text/plain; charset=utf-8"}
_LOOK_EVERY = 1.0  # seconds between two looks at a log that is followed
_NOTHING_RUNS = ("exec", "run", "attach", "portForward", "cri")
_HONEST = "this is a virtual node: nothing runs here that could take commands, input or connections"
_LOG_PARTS = 4

FindPod = Callable[[Key], VirtualPod | None]


class KubeletAPI:
    """The kubelets of all virtual nodes on one port, over TLS with a self-signed certificate and without
    authentication, since all data is simulated.
    """

    def __init__(self, host: str, port: int, find: FindPod) -> None:
        self._find = find
        names = list(dict.fromkeys(["localhost", host]))
        self._server = HTTPServer(self.handle, host, port, Contexts(SelfSigned("virtual-node", names)))

    @property
    def port(self) -> int:
        """Return the port after the start."""
        return self._server.port

    async def start(self) -> None:
        """Listen. Raises CannotListen."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop accepting requests and end followed logs."""
        await self._server.stop(grace=1.0)

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        parts = request.path.strip("/").split("/")
        match parts[0]:
            case "healthz":
                return Response(200, _TEXT, b"ok")
            case "containerLogs" if len(parts) == _LOG_PARTS and request.method == "GET":
                try:
                    return self._log(Key(parts[1], parts[2]), parts[3], request)
                except ApiError as error:
                    return Response(error.code, _TEXT, error.message.encode())
            case command if command in _NOTHING_RUNS:
                return refusal(BadRequest(_HONEST))
        return Response(404, _TEXT, b"404 page not found\n")

    def _log(self, key: Key, container: str, request: Request) -> Response:
        now = clock.wall_seconds()
        options = log_options(request.query, now)
        run = run_of(self._pod(key), container, previous=options.previous)
        lines = log_of(run, options, now)
        if options.follow and run.end is None:
            return Response(200, _TEXT, self._follow(key, container, run, lines, options))
        body = b"".join(line.encode(timestamp=options.timestamps) for line in lines)
        return Response(200, _TEXT, body if options.limit is None else body[: options.limit])

    async def _follow(
        self, key: Key, container: str, run: ContainerRun, lines: Iterable[Line], options: LogOptions
    ) -> AsyncIterator[bytes]:
        """Stream log lines until the run has ended."""
        last, left = clock.wall_seconds(), options.limit
        while True:
            body = b"".join(line.encode(timestamp=options.timestamps) for line in lines)
            if left is not None:
                body, left = body[:left], max(0, left - len(body))
            if body:
                yield body
            if run.end is not None or left == 0:
                return
            await asyncio.sleep(_LOOK_EVERY)
            try:
                again = run_of(self._pod(key), container, previous=False)
            except BadRequest:
                return
            if again.status.container_id != run.status.container_id:
                return
            run, now = again, clock.wall_seconds()
            lines, last = list(run.lines(last, now)), now

    def _pod(self, key: Key) -> VirtualPod:
        pod = self._find(key)
        if pod is None:
            raise BadRequest(f'pod "{key.name}" is not on this node')
        return pod
