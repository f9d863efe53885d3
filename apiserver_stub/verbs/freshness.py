"""Waiting, briefly, for a resource version this server has not reached."""

import asyncio

from apiserver_stub.store.errors import TooNew
from apiserver_stub.verbs.scope import RequestScope


async def wait_until_fresh(scope: RequestScope, revision: int) -> None:
    """Return once the store has reached `revision`. Raises `TooNew` (a `Timeout`) when it does not soon."""
    store = scope.store
    if store.revision >= revision:
        return
    try:
        async with asyncio.timeout(scope.limits.patience):
            await store.reached(revision)
    except TimeoutError:
        raise TooNew(revision, store.revision) from None
