"""The replica count of an object, read and changed without knowing its kind."""

from collections.abc import Callable
from functools import partial

import orjson

from apiserver_stub.call import APIRequest, Item, Reply, Tree
from apiserver_stub.encode.body import Body, decode_body
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.resource_info import ResourceInfo, ScalePaths, Subresource
from apiserver_stub.kinds.scale import from_scale, to_scale
from apiserver_stub.kinds.trees import get_in, put_in
from apiserver_stub.verbs.apply import Application, read_document
from apiserver_stub.verbs.create import check_namespace
from apiserver_stub.verbs.decode import Warnings, check, fit
from apiserver_stub.verbs.get import get
from apiserver_stub.verbs.guaranteed_update import Fresh
from apiserver_stub.verbs.patch import Patch, unfit
from apiserver_stub.verbs.request_options import is_apply
from apiserver_stub.verbs.revise import revise
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.update import check_name
from controller_manager.api.errors import ApiError, BadRequest, Cause, invalid

_PRESUMED = ("name", "namespace", "uid", "resourceVersion")


class _Scaling:
    """What the body of one call says about the scale of its object."""

    def __init__(self, scope: RequestScope, call: APIRequest, part: Subresource) -> None:
        self._scope = scope
        self._call = call
        self._part = part
        self._api_version = f"{part.group}/{part.version}"
        self._node = part.schema

    def replace(self, fresh: Fresh) -> tuple[Tree, Warnings]:
        """The object with the scale that was sent."""
        body = decode_body(self._call.http, self._api_version, self._part.kind)
        return self._laid_over(fresh, body)

    def patch(self, patch: Patch, fresh: Fresh) -> tuple[Tree, Warnings]:
        """The object with its scale patched."""
        scale = patch.apply(to_scale(fresh(), self._call.kind), self._node)
        patch.check(scale, self._api_version, self._part.kind)
        return self._laid_over(fresh, Body(scale, patch.duplicates), unfit)

    def application(self) -> Application:
        """The configuration of the object that sets what the applied scale says."""
        call, part = self._call, self._part
        body = read_document(call, self._api_version, part.kind)
        warnings = check(call, body, self._node, part.kind)
        scale = body.tree
        self._check(scale)
        presumed = {name: scale["metadata"][name] for name in _PRESUMED if name in scale["metadata"]}
        config: Tree = {"apiVersion": call.kind.api_version, "kind": call.kind.kind, "metadata": presumed}
        replicas = get_in(scale, ("spec", "replicas"))
        if replicas is not None:
            put_in(config, (call.kind.scale or ScalePaths()).spec, replicas)
        return Application(self._scope, call, config, warnings)

    def _laid_over(
        self, fresh: Fresh, body: Body, refuse: Callable[[str], ApiError] = BadRequest
    ) -> tuple[Tree, Warnings]:
        """The object with the replicas of the scale, presuming the version and uid the scale names."""
        scale, call = body.tree, self._call
        warnings = fit(call, body, self._node, self._part.kind, refuse)
        metadata = scale.setdefault("metadata", {})
        check_name(call, metadata)
        check_namespace(call, metadata)
        self._check(scale)
        tree = from_scale(fresh(), scale, call.kind)
        presumed = {name: metadata[name] for name in ("resourceVersion", "uid") if name in metadata}
        tree["metadata"] = {**tree["metadata"], **presumed}
        return tree, warnings

    def _check(self, scale: Tree) -> None:
        replicas = get_in(scale, ("spec", "replicas")) or 0
        if replicas < 0:
            message = f"Invalid value: {replicas}: must be greater than or equal to 0"
            cause = Cause(reason="FieldValueInvalid", message=message, field="spec.replicas")
            raise invalid(self._part.group, self._part.kind, self._call.name, [cause])


async def get_scale(scope: RequestScope, call: APIRequest) -> Reply:
    """The scale of the object."""
    body = (await get(scope, call)).body
    assert isinstance(body, Item)
    return Reply(Item(_shown(call.kind, body.data)))


async def update_scale(scope: RequestScope, call: APIRequest) -> Reply:
    """The scale as it is now."""
    assert call.subresource is not None
    scaling = _Scaling(scope, call, call.subresource)
    return await revise(scope, call, scaling.replace, lambda data: _shown(call.kind, data))


async def patch_scale(scope: RequestScope, call: APIRequest) -> Reply:
    """The scale as it is now."""
    assert call.subresource is not None
    scaling, run = _Scaling(scope, call, call.subresource), scope.run_of(call.http)
    if is_apply(call):
        application = await run(scaling.application)
        return await revise(
            scope, call, application.edit, lambda data: _shown(call.kind, data), application.manage_fields
        )
    document = await run(partial(Patch, call))
    return await revise(scope, call, lambda fresh: scaling.patch(document, fresh), lambda data: _shown(call.kind, data))


def _shown(kind: ResourceInfo, data: bytes) -> bytes:
    return encode(in_order(to_scale(orjson.loads(data), kind)))
