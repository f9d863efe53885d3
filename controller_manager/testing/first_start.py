"""The first start of a cluster's API server. In virtual time its result is cached for equal clusters."""

import asyncio
from collections.abc import Callable

from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.storage.memory import MemoryRows
from controller_manager.common.api.wire import Request
from controller_manager.testing.virtual import VirtualLoop, random_state_of

_NO_SEED = -(1 << 32)  # first starts use random numbers, such as uids, that no test uses
_MOST_KEPT = 32  # number of cached first starts, each of about a hundred rows
# The stored rows after a first start, by the flags of the server and the time.
_KEPT: dict[tuple[tuple[str, ...], float], MemoryRows] = {}
_Build = Callable[[MemoryRows], ApiServer]


async def first_start(api: ApiServer, rows: MemoryRows, flags: tuple[str, ...], build: _Build) -> None:
    """Start a server that was built with empty storage.

    In virtual time it gets the cached rows of an earlier first start. Without one, a server from `build` is started to
    create them, so that all clusters start in the same way. Random values such as uids are the same for every seed,
    and the start does not change the random state of the loop.
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
    """Start a server on rows that another server has initialized."""
    await api.resume()
    await api.handle(Request("GET", "/livez"))  # the first request draws the random prefix of audit ids
