"""Replace an object (API concepts, Update operations)."""

from collections.abc import Callable
from functools import partial

from apiserver_stub.kinds.shared_parts import may_share
from apiserver_stub.kinds.strategies.strategy import Strategy
from apiserver_stub.request.api_request import APIRequest, Reply
from apiserver_stub.verbs.create import creation
from apiserver_stub.verbs.decode import read_object
from apiserver_stub.verbs.field_management import manage_changed_fields, manage_new_fields
from apiserver_stub.verbs.mutation import Edit, Edited, Load, ManageFields, Mutation, View
from apiserver_stub.verbs.preconditions import check_name, refuse_uid
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.write import write
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import User


async def update(scope: RequestScope, request: APIRequest) -> Reply:
    """Update the object and return it. If nothing changes, the object keeps its resourceVersion."""
    otherwise = None
    if request.kind.strategy.creates_on_update and request.subresource is None:
        otherwise = creation(request, partial(_sent_new, request), partial(manage_new_fields, scope, request))
    return (await write(scope, request, change(scope, request, partial(_sent, request), otherwise=otherwise))).reply()


def change(
    scope: RequestScope,
    request: APIRequest,
    edit: Edit,
    manage_fields: ManageFields | None = None,
    otherwise: Mutation | None = None,
    view: View | None = None,
) -> Mutation:
    """Return the mutation that replaces an object with the result of `edit`. The caller owns the fields it changed,
    unless `manage_fields` is given.

    If the change removes the last finalizer of a terminating object, the object is removed.
    """
    manage_fields = manage_fields or partial(manage_changed_fields, scope, request)
    return Mutation("update", edit, partial(_prepare, request), manage_fields, otherwise, view)


async def amend(
    scope: RequestScope, of: tuple[str, str, str], namespace: str, name: str, edit: Callable[[Tree], Tree]
) -> None:
    """Replace an object with the result of `edit`, which may remove its last finalizer. `of` is group, version and
    plural. Raises `NotFound` and the errors of `edit`.
    """
    kind = scope.kinds.find(*of)
    assert kind is not None
    request = APIRequest(Request("PUT", "/"), User(""), "update", kind, namespace, name, None, {})
    await write(scope, request, Mutation(None, lambda load: Edited(edit(load())), partial(_is_let_go, kind.strategy)))


def _sent(request: APIRequest, load: Load) -> Edited:
    complete = may_share(request.kind)
    tree, warnings = read_object(request, load.state if complete else None)
    check_name(request, tree["metadata"])
    return Edited(tree, warnings, completed=complete)


def _sent_new(request: APIRequest, load: Load) -> Edited:
    edited = _sent(request, load)
    refuse_uid(request, edited.tree["metadata"])
    request.kind.strategy.forget(edited.tree["metadata"])
    return edited


def _prepare(request: APIRequest, new: Tree, old: Tree | None) -> bool:
    strategy, subresource = request.kind.strategy, request.subresource
    assert old is not None
    if subresource is not None and strategy.serves(subresource.name):
        strategy.prepare_subresource(subresource.name, new, old)
    else:
        strategy.prepare_update(new, old)
    return _is_let_go(strategy, new, old)


def _is_let_go(strategy: Strategy, new: Tree, old: Tree | None) -> bool:
    """Return whether an object must be removed, since it is terminating and no finalizer or grace period is left."""
    metadata = old["metadata"] if old is not None else {}
    if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not strategy.still_held(new)
