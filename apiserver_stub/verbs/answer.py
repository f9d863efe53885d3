"""Which verb answers a call."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from apiserver_stub.call import APIRequest, Handler, Reply
from apiserver_stub.kinds.warnings import deprecated_kind
from apiserver_stub.request_info import not_allowed
from apiserver_stub.verbs.create import create
from apiserver_stub.verbs.delete import delete, delete_collection
from apiserver_stub.verbs.get import get
from apiserver_stub.verbs.list import list_
from apiserver_stub.verbs.patch import patch
from apiserver_stub.verbs.query import check_write
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.subresources.binding import bind, bind_named
from apiserver_stub.verbs.subresources.eviction import evict
from apiserver_stub.verbs.subresources.scale import get_scale, patch_scale, update_scale
from apiserver_stub.verbs.subresources.unsupported import refuse_unsupported
from apiserver_stub.verbs.update import update
from apiserver_stub.verbs.watch import watch

Verb = Callable[[RequestScope, APIRequest], Awaitable[Reply]]

_VERBS: Mapping[str, Verb] = MappingProxyType({
    "get": get, "list": list_, "watch": watch, "create": create, "update": update, "patch": patch,
    "delete": delete, "deletecollection": delete_collection,
})  # fmt: skip
_WRITES = frozenset({"create", "update", "patch"})
_ON_PARTS: Mapping[tuple[str, str], Verb] = MappingProxyType({
    ("scale", "get"): get_scale, ("scale", "update"): update_scale, ("scale", "patch"): patch_scale,
    ("binding", "create"): bind, ("eviction", "create"): evict,
})  # fmt: skip
_NO_KINDS: Mapping[tuple[str, str], Handler] = MappingProxyType({})
_ACTS: Mapping[tuple[str, str], Verb] = MappingProxyType({("binding", "create"): bind_named})


class Verbs:
    """Answers every call for a resource.

    `more` are verbs on subresources, by subresource and verb, that need more than the tools; `virtual` is what answers
    calls for kinds that are not kept in the store, by group and plural.
    """

    def __init__(
        self,
        scope: RequestScope,
        more: Mapping[tuple[str, str], Verb] | None = None,
        virtual: Mapping[tuple[str, str], Handler] = _NO_KINDS,
    ) -> None:
        self._scope = scope
        self._on_parts = {**_ON_PARTS, **(more or {})}
        self._virtual = virtual

    def answer(self, call: APIRequest) -> Awaitable[Reply]:
        """What the call asks for, done. Raises the refusal of what can't be, and then nothing was."""
        virtual = self._virtual.get((call.kind.group, call.kind.plural))
        return self._stored(call) if virtual is None else virtual(call)

    async def _stored(self, call: APIRequest) -> Reply:
        verb = self._verb(call)
        if call.verb in _WRITES:
            check_write(call)
        reply = await verb(self._scope, call)
        deprecated = deprecated_kind(call.kind)
        return replace(reply, warnings=(deprecated, *reply.warnings)) if deprecated else reply

    def _verb(self, call: APIRequest) -> Verb:
        kind, part = call.kind, call.subresource
        if part is None:
            found = _VERBS[call.verb] if kind.persisted else _ACTS.get((kind.acts_on[1], call.verb))
        elif kind.strategy.serves(part.name):
            found = _VERBS[call.verb]
        else:
            found = self._on_parts.get((part.name, call.verb), refuse_unsupported)
        if found is None:
            raise not_allowed()
        return found
