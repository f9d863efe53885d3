"""Dispatch a request to the function of its verb."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from apiserver_stub.kinds.resource_info import Converter
from apiserver_stub.kinds.warnings import deprecated_kind
from apiserver_stub.patch.conversions import Conversions
from apiserver_stub.request.api_request import APIRequest, Handler, Reply
from apiserver_stub.request.request_info import not_allowed
from apiserver_stub.verbs.create import create
from apiserver_stub.verbs.decode import note_unread
from apiserver_stub.verbs.delete import delete, delete_collection
from apiserver_stub.verbs.get import get
from apiserver_stub.verbs.list import list_
from apiserver_stub.verbs.patch import patch
from apiserver_stub.verbs.query import check_write, is_apply
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.subresources.pods import bind, bind_named, evict
from apiserver_stub.verbs.subresources.scale import get_scale, patch_scale, update_scale
from apiserver_stub.verbs.update import update
from apiserver_stub.verbs.watch import watch
from controller_manager.common.api.errors import ApiError

Verb = Callable[[RequestScope, APIRequest], Awaitable[Reply]]

_VERBS: Mapping[str, Verb] = MappingProxyType({
    "get": get, "list": list_, "watch": watch, "create": create, "update": update, "patch": patch,
    "delete": delete, "deletecollection": delete_collection,
})  # fmt: skip
_WRITES = frozenset({"create", "update", "patch"})
_ON_SUBRESOURCES: Mapping[tuple[str, str], Verb] = MappingProxyType({
    ("scale", "get"): get_scale, ("scale", "update"): update_scale, ("scale", "patch"): patch_scale,
    ("binding", "create"): bind, ("eviction", "create"): evict,
})  # fmt: skip
_NO_KINDS: Mapping[tuple[str, str], Handler] = MappingProxyType({})
_ACTS: Mapping[tuple[str, str], Verb] = MappingProxyType({("binding", "create"): bind_named})


def _conversions(request: APIRequest, converter: Converter) -> Conversions:
    return Conversions((is_apply(request) and request.kind.strict_converter) or converter)


class Verbs:
    """Handles every request for a resource.

    `more` are further verbs on subresources, keyed by subresource and verb. `virtual` are the handlers of kinds that
    are not stored, keyed by group and plural.
    """

    def __init__(
        self,
        scope: RequestScope,
        more: Mapping[tuple[str, str], Verb] | None = None,
        virtual: Mapping[tuple[str, str], Handler] = _NO_KINDS,
    ) -> None:
        self._scope = scope
        self._on_subresources = {**_ON_SUBRESOURCES, **(more or {})}
        self._virtual = virtual

    def answer(self, request: APIRequest) -> Awaitable[Reply]:
        """Handle the request. Raises `ApiError`; nothing has been changed then."""
        virtual = self._virtual.get((request.kind.group, request.kind.plural))
        return self._stored(request) if virtual is None else virtual(request)

    async def _stored(self, request: APIRequest) -> Reply:
        verb = self._verb(request)
        deprecated = deprecated_kind(request.kind)
        try:
            if request.verb in _WRITES:
                check_write(request)
                if request.kind.converter is not None:
                    request = replace(request, conversions=_conversions(request, request.kind.converter))
            reply = await verb(self._scope, request)
        except ApiError as refusal:
            if request.verb == "update":
                note_unread(request)
            if deprecated:
                refusal.warnings = (deprecated, *refusal.warnings)
            raise
        return replace(reply, warnings=(deprecated, *reply.warnings)) if deprecated else reply

    def _verb(self, request: APIRequest) -> Verb:
        kind, subresource = request.kind, request.subresource
        if subresource is None:
            found = _VERBS[request.verb] if kind.persisted else _ACTS.get((kind.acts_on[1], request.verb))
        elif kind.strategy.serves(subresource.name):
            found = _VERBS[request.verb]
        else:
            found = self._on_subresources.get((subresource.name, request.verb))
        if found is None:
            raise not_allowed()
        return found
