"""Changes of objects that the server makes on its own account, in books that it keeps; admission is not asked."""

from collections.abc import Callable

from apiserver_stub.call import APIRequest, Tree, User
from apiserver_stub.verbs.mutation import Edited, Mutation
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.write import write
from controller_manager.api.wire import Request


async def amend(
    scope: RequestScope, of: tuple[str, str, str], namespace: str, name: str, change: Callable[[Tree], Tree]
) -> None:
    """Write what a function makes of an object; its kind is named by group, version and plural. Raises `NotFound`, and
    what the function raises.
    """
    kind = scope.kinds.find(*of)
    assert kind is not None
    request = APIRequest(Request("PUT", "/"), User(""), "update", kind, namespace, name, None, {})
    await write(scope, request, Mutation(None, lambda load: Edited(change(load()))))
