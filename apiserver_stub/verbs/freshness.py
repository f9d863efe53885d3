"""Waiting, briefly, for a resource version this server has not reached."""

import asyncio

from apiserver_stub.storage.errors import TooNew
from apiserver_stub.verbs.scope import RequestScope


async def wait_until_fresh(scope: RequestScope, revision: int | None) -> None:
    """Return once `revision` is visible here (0: whatever is there; None: all that any server has acknowledged).
    Raises `TooNew` (a `Timeout`) when it is not soon.
    """
    store = scope.store
    if revision is None:
        revision = await store.storage.current_revision()
    if store.revision >= revision:
        return
    try:
        async with asyncio.timeout(scope.limits.patience):
            await store.reached(revision)
    except TimeoutError:
        raise TooNew(revision, store.revision) from None
