"""A shared storage whose owner runs in this process and can be killed."""

import os
import shutil
import socket
import tempfile
from pathlib import Path

from apiserver_stub.storage.backend import Backend
from apiserver_stub.storage.embedded import EmbeddedStorage, StorageRules
from apiserver_stub.storage.shared.owner import StorageOwner
from apiserver_stub.storage.shared.revision_page import RevisionPage, new_page_file
from apiserver_stub.storage.shared.storage import SharedStorage
from tests.apiserver_stub.memory_backend import MemoryBackend


class InProcessOwner:
    """The owner of a log; its socket remains when another owner takes its place."""

    def __init__(self, backend: Backend, rules: StorageRules | None = None) -> None:
        self._rules = rules
        self._folder = Path(tempfile.mkdtemp())
        self.path = str(self._folder / "owner.sock")
        self.page = RevisionPage(file := new_page_file())
        os.close(file)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._serving: StorageOwner | None = None
        self.backend = backend

    async def start(self) -> None:
        """Open the log and serve it."""
        born = object()
        self._born = born

        def reached(revision: int) -> None:
            if self._born is born:  # a killed owner shows nothing
                self.page.set(revision)

        storage = EmbeddedStorage(self.backend, self._rules, reached=reached)
        self._serving = StorageOwner(storage, self._listener.dup())
        await self._serving.open()

    async def stop(self) -> None:
        """Stop cleanly."""
        if self._serving is not None:
            await self._serving.close()
            self._serving = None

    async def kill(self) -> None:
        """Stop at once: data that is not on the disk or in a socket is lost."""
        assert isinstance(self.backend, MemoryBackend)
        assert self._serving is not None
        dying, self._serving = self._serving, None
        self.backend = self.backend.copy()
        self._born = None
        for session in dying._sessions:
            session.connection.abort()
        await dying.close()

    def cut_off(self, number: int) -> None:
        """Break the connection of one user."""
        assert self._serving is not None
        sessions = list(self._serving._sessions)
        if number < len(sessions):
            sessions[number].connection.abort()

    async def close(self) -> None:
        """Stop for good."""
        await self.stop()
        self._listener.close()
        shutil.rmtree(self._folder)


class StorageWithOwner(SharedStorage):
    """A storage that starts its own owner."""

    def __init__(self, backend: Backend, rules: StorageRules | None = None) -> None:
        self.owner = InProcessOwner(backend, rules)
        super().__init__(self.owner.path, self.owner.page)

    async def _begin(self) -> None:
        await self.owner.start()
        await super()._begin()

    async def close(self) -> None:
        await super().close()
        if self._closed:
            await self.owner.close()
