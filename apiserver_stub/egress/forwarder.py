"""Unix sockets that lead to servers through a dialer, for libraries that open their connections themselves."""

import asyncio
import shutil
import tempfile
from functools import partial
from pathlib import Path

from apiserver_stub.egress.sockets import carry
from controller_manager.base.log import Logger
from controller_manager.base.tasks import Tasks, contain
from controller_manager.transport.dialer import Dialer
from controller_manager.transport.duplex import SocketStream, StreamOpener


class SocketForwarder:
    """Sockets in a folder that only this user may enter, one for each server, until it is closed."""

    def __init__(self, dialer: Dialer, log: Logger) -> None:
        self._dialer = dialer
        self._log = log
        self._folder = ""
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._tasks: Tasks | None = None

    async def reach(self, host: str, port: int) -> str:
        """Return the target at which a server is reached, as gRPC knows targets. Raises OSError."""
        if self._tasks is None:
            self._tasks = await Tasks().__aenter__()
            self._folder = tempfile.mkdtemp(prefix="etcd-")
        path = Path(self._folder) / f"{len(self._servers)}.sock"
        loop = asyncio.get_running_loop()
        forward = partial(StreamOpener, partial(self._accept, host, port))
        self._servers[host, port] = await loop.create_unix_server(forward, path)
        return f"unix:{path}"

    async def close(self) -> None:
        """End all connections."""
        for server in self._servers.values():
            server.close()
        if self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            await tasks.__aexit__(None, None, None)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self, host: str, port: int, stream: SocketStream) -> None:
        if self._tasks is None:
            stream.abort()
            return
        work = partial(contain, partial(self._forward, host, port, stream), self._log, name="connection to etcd")
        self._tasks.start(work(), name="connection to etcd")

    async def _forward(self, host: str, port: int, stream: SocketStream) -> None:
        try:
            found = await self._dialer.dial(host, port)
        except OSError as error:
            self._log.warning("a server cannot be reached through its proxy", host=host, port=port, error=str(error))
            stream.abort()
            return
        _, opener = await asyncio.get_running_loop().create_connection(StreamOpener, sock=found)
        await carry(stream, opener.stream)
