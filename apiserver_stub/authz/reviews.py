"""Virtual resources: reviews that are answered in their status and never stored."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from apiserver_stub.common.offload import Offload
from apiserver_stub.encode.body import run_of
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.values.trees import put_in
from apiserver_stub.request.api_request import APIRequest, Handler, Item, Reply
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.model import Model
from controller_manager.common.api.tree import Tree

M = TypeVar("M", bound=Model)
# Metadata fields set by servers, which have no meaning in a review.
_NOT_SENT = ("creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields")

Review = Callable[[APIRequest, Tree], Awaitable[Tree]]
"""Answers a review: returns the status of the object, and may change its other fields."""
Read = Callable[[APIRequest], Awaitable[tuple[Tree, tuple[str, ...]]]]
"""Decodes the object of a request according to its schema; also returns warnings."""


class Reviews:
    """Handles requests for the virtual resources of a table by group and plural."""

    def __init__(self, table: Mapping[tuple[str, str], Review], read: Read, offload: Offload) -> None:
        self._table = table
        self._read = read
        self._offload = offload

    def answers(self) -> Mapping[tuple[str, str], Handler]:
        """Return the request handlers by group and plural."""
        return dict.fromkeys(self._table, self.answer)

    async def answer(self, request: APIRequest) -> Reply:
        """Return the review with its status."""
        review = self._table[request.kind.group, request.kind.plural]
        tree, warnings = await self._read(request)
        for name in _NOT_SENT:
            put_in(tree, ("metadata", name), None)
        status = await review(request, tree)
        run = run_of(self._offload, request)
        return Reply(Item(await run(lambda: encode(in_order({**tree, "status": status})))), 201, warnings)


def read(tree: Tree, model: type[M]) -> M:
    """Return the object's `spec` as `model`. Raises `BadRequest` naming the invalid field."""
    try:
        return msgspec.convert(tree.get("spec") or {}, model)
    except msgspec.ValidationError as error:
        raise BadRequest(f"spec: {error}") from None
