"""The first start of the API server of a cluster, which in virtual time is done once for all clusters alike."""

import asyncio
from collections.abc import Callable

from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.storage.memory import MemoryRows
from controller_manager.common.api.wire import Request
from controller_manager.testing.virtual import VirtualLoop, random_state_of

_NO_SEED = -(1 << 32)  # what first starts draw, like uids, no test draws again
_MOST_KEPT = 32  # first starts, each of about a hundred rows
# What a first start leaves, by what it depends on: the flags of the server, and the time.
_KEPT: dict[tuple[tuple[str, ...], float], MemoryRows] = {}
_Build = Callable[[MemoryRows], ApiServer]


async def first_start(api: ApiServer, rows: MemoryRows, flags: tuple[str, ...], build: _Build) -> None:
    """Start a server that was built on no rows.

    In virtual time it is given the rows that another one left, which `build` makes where none has: so that all begin
    alike, whoever was first in a process. What is drawn by chance meanwhile, uids for example, is the same for every
    seed, of which the start uses up nothing.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        await api.start()
        return
    began, own = (flags, loop.wall_time()), loop.random_state
    loop.random_state = random_state_of(_NO_SEED)
    known = _KEPT.get(began)
    if known is None:
        known = MemoryRows()
        other = build(known)
        await other.start()
        left = known.copy()
        await other.stop()
        known = left
        if loop.wall_time() == began[1]:
            if len(_KEPT) >= _MOST_KEPT:
                _KEPT.pop(next(iter(_KEPT)))
            _KEPT[began] = known
        loop.random_state = random_state_of(_NO_SEED)
    rows.adopt(known)
    await resume(api)
    loop.random_state = own


async def resume(api: ApiServer) -> None:
    """Start a server on rows that another one has settled."""
    await api.resume()
    await api.handle(Request("GET", "/livez"))  # the first request draws by what all are told apart in the audit
