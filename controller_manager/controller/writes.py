"""Writes of controllers: what a refusal means for the one who wrote, and status that is only sent if it is new.

refusal                                             meaning         then
403 with the cause NamespaceTerminating, or         NAMESPACE_ENDS  nothing is left to do: what is written for
  404 of the namespace itself                                         goes with its namespace
409 (Conflict, AlreadyExists), 404 of the object    STALE           raised: it is decided anew on what is there now
any other                                           FAILED          told, and raised
"""

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TypeVar

from controller_manager.api.errors import ApiError, Details
from controller_manager.api.model import Object
from controller_manager.api.resource import Resource
from controller_manager.client import Client

T = TypeVar("T", bound=Object)

_TERMINATING = "NamespaceTerminating"
_NOTHING = Details()


class Refusal(Enum):
    """What it means that the server refused a write."""

    NAMESPACE_ENDS = auto()
    STALE = auto()
    FAILED = auto()


def refusal_of(error: ApiError) -> Refusal:
    """The meaning of the refusal of a write, by the table above."""
    details = error.details or _NOTHING
    of_namespace = error.code == 404 and (details.group, details.kind) == ("", "namespaces")
    if of_namespace or any(cause.reason == _TERMINATING for cause in details.causes):
        return Refusal.NAMESPACE_ENDS
    if error.code == 409 or (error.code == 404 and details.name):
        return Refusal.STALE
    return Refusal.FAILED


async def try_write(write: Awaitable[object], on_failure: Callable[[ApiError], None] | None = None) -> bool:
    """Await a write within a namespace; return whether it was made, False if its namespace is gone or being deleted.

    Every other refusal is raised. `on_failure` is told of those that are not merely stale, to make an event of them.
    """
    try:
        await write
    except ApiError as error:
        refusal = refusal_of(error)
        if refusal is Refusal.NAMESPACE_ENDS:
            return False
        if refusal is Refusal.FAILED and on_failure is not None:
            on_failure(error)
        raise
    return True


async def update_status(client: Client, resource: Resource[T], before: T, after: T) -> T:
    """Write the status of `after`, which was made of `before`, unless they are equal; return what is there now."""
    if after == before:
        return before
    return await client.update(resource, after, subresource="status")
