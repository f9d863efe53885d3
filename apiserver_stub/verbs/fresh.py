"""Waiting, briefly, for a resource version this server has not reached."""

import asyncio

from apiserver_stub.store.refusals import TooNew
from apiserver_stub.verbs.tools import Tools


async def not_older_than(tools: Tools, revision: int) -> None:
    """Return once the store has reached `revision`. Raises `TooNew` (a `Timeout`) when it does not soon."""
    store = tools.store
    if store.revision >= revision:
        return
    try:
        async with asyncio.timeout(tools.limits.patience):
            await store.reached(revision)
    except TimeoutError:
        raise TooNew(revision, store.revision) from None
