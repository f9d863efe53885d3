"""Connects a library that opens its own connections to the collector through a dialer."""

import asyncio
from functools import partial
from tempfile import TemporaryDirectory

from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks, contain
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.duplex import SocketStream, StreamOpener, relay

_PORT = 4317


class DialedEndpoint:
    """A private Unix socket that forwards connections to `target` (host:port)."""

    def __init__(self, target: str, dialer: Dialer, log: Logger) -> None:
        host, colon, port = target.rpartition(":")
        self._host, self._port = (host.strip("[]"), int(port)) if colon else (target, _PORT)
        self._dialer = dialer
        self._log = log
        self._folder = TemporaryDirectory(prefix="traces-")
        self._path = f"{self._folder.name}/collector"
        self.target = f"unix:{self._path}"
        self._tasks: Tasks | None = None
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Start accepting connections."""
        if self._server is None:
            self._tasks = await Tasks().__aenter__()
            self._server = await asyncio.get_running_loop().create_unix_server(
                partial(StreamOpener, self._accept), self._path
            )

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        if self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            await tasks.__aexit__(None, None, None)
        self._folder.cleanup()

    def _accept(self, stream: SocketStream) -> None:
        if self._tasks is not None:
            work = partial(contain, partial(self._carry, stream), self._log, name="collector")
            self._tasks.start(work(), name="collector").add_done_callback(lambda _: stream.close())

    async def _carry(self, stream: SocketStream) -> None:
        try:
            dialed = await self._dialer.dial(self._host, self._port)
            _, opener = await asyncio.get_running_loop().create_connection(StreamOpener, sock=dialed)
            try:
                await relay(stream, opener.stream)
            finally:
                opener.stream.close()
        except OSError as error:
            self._log.debug("failed to connect to the trace collector", error=str(error))
