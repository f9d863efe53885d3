"""The server's own changes of what it keeps books in."""

from collections.abc import Callable

from apiserver_stub.call import APIRequest, Tree, User
from apiserver_stub.verbs.guaranteed_update import Fresh, Write, guaranteed_update
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.api.wire import Request


async def amend(
    scope: RequestScope, of: tuple[str, str, str], namespace: str, name: str, change: Callable[[Tree], Tree]
) -> None:
    """Write what a function makes of an object; its kind is named by group, version and plural. Raises `NotFound`, and
    what the function raises.
    """
    kind = scope.kinds.find(*of)
    assert kind is not None

    async def decide(fresh: Fresh) -> Write | None:
        new = change(fresh())
        return None if new == fresh() else Write(new)

    request = APIRequest(Request("PUT", "/"), User(""), "update", kind, namespace, name, None, {})
    await guaranteed_update(scope, request, decide)
