"""A server whose disk takes nothing more: writes are refused, reads go on, readiness says so until it is over."""

from collections.abc import Sequence

import pytest

from apiserver_stub.build import build
from apiserver_stub.flags import FLAGS
from apiserver_stub.store.backend import Done
from apiserver_stub.store.memory import MemoryBackend
from apiserver_stub.store.row import Record
from controller_manager.api.core import NAMESPACES
from controller_manager.api.errors import ServiceUnavailable
from controller_manager.api.resource import Key
from controller_manager.api.wire import Certificate, Request, Response
from controller_manager.base.runtime import Runtime
from controller_manager.client import Client, InProcessTransport
from controller_manager.testing import builders


class Disk(MemoryBackend):
    """A memory that can be full."""

    full = False

    def append(self, records: Sequence[Record], done: Done) -> None:
        if self.full:
            done(OSError("no space left on device"))
        else:
            super().append(records, done)


@pytest.mark.virtual
async def test_a_full_disk_shows_and_passes() -> None:
    disk = Disk()
    api = build(FLAGS.parse(("--storage-backend=memory", "--bind-address=127.0.0.1")), Runtime("test"), disk)
    await api.start()
    client = Client(InProcessTransport(api.handle, certificate=Certificate("admin", ("system:masters",))))

    async def status(path: str) -> int:
        answer: Response = await api.handle(Request("GET", path))
        return answer.status

    disk.full = True
    with pytest.raises(ServiceUnavailable, match="no space left"):
        await client.create(NAMESPACES, builders.namespace("a"))
    assert (await client.get(NAMESPACES, Key("", "default"))).metadata.name == "default"
    assert [await status(path) for path in ("/readyz", "/readyz/datastore", "/livez")] == [500, 500, 200]
    disk.full = False
    await client.create(NAMESPACES, builders.namespace("a"))
    assert await status("/readyz") == 200
    await api.stop()
