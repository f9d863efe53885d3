"""Waiting, briefly, for a resource version this server has not reached."""

import asyncio

from apiserver_stub.store.refusals import TooNew
from apiserver_stub.verbs.tools import Tools
from controller_manager.base.clock import monotonic

_PAUSE = 0.02


async def not_older_than(tools: Tools, revision: int) -> None:
    """Return once the store has reached `revision`. Raises `TooNew` (a `Timeout`) when it does not soon."""
    store, deadline = tools.store, monotonic() + tools.limits.patience
    while store.revision < revision:
        if monotonic() >= deadline:
            raise TooNew(revision, store.revision)
        await asyncio.sleep(_PAUSE)
