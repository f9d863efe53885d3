"""The scale subresource: read and change the replica count of any kind."""

from collections.abc import Callable
from functools import partial

import orjson
from msgspec.structs import replace

from apiserver_stub.encode.body import DecodedBody, decode_body
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from apiserver_stub.kinds.strategies.scale import ScalePaths, from_scale, to_scale, typed_in
from apiserver_stub.kinds.values.trees import get_in, put_in
from apiserver_stub.request.api_request import APIRequest, Item, Reply
from apiserver_stub.verbs.apply import Application, read_document
from apiserver_stub.verbs.decode import check, fit, note_object
from apiserver_stub.verbs.get import get
from apiserver_stub.verbs.mutation import Edit, Edited, Load, ManageFields, View, nothing
from apiserver_stub.verbs.patch import Patch, unfit
from apiserver_stub.verbs.preconditions import check_name, check_namespace
from apiserver_stub.verbs.query import is_apply
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.update import change
from apiserver_stub.verbs.write import write
from controller_manager.common.api.errors import ApiError, BadRequest, Cause, UnknownError, internal_error, invalid
from controller_manager.common.api.tree import Tree

_PRESUMED = ("name", "namespace", "uid", "resourceVersion")


async def get_scale(scope: RequestScope, request: APIRequest) -> Reply:
    """Return the scale of the object."""
    return _as_scale(request.kind, await get(scope, request))


async def update_scale(scope: RequestScope, request: APIRequest) -> Reply:
    """Update the scale and return the result."""
    return await _change(scope, request, _Scaling(request).replace)


async def patch_scale(scope: RequestScope, request: APIRequest) -> Reply:
    """Patch the scale and return the result."""
    scaling, run = _Scaling(request), scope.run_of(request)
    if is_apply(request):
        application = await run(partial(scaling.application, scope))
        edit = _refusing(request, application.edit) if _paths(request.kind).strict else application.edit
        return await _change(scope, request, edit, nothing)
    document = await run(partial(Patch, request))
    return await _change(scope, request, partial(scaling.patch, document))


def _refusing(request: APIRequest, edit: Edit) -> Edit:
    """Return an edit that fails where the given one succeeds, as kube-apiserver does: it cannot convert the
    managedFields of a custom object to those of a Scale.
    """

    def refuse(load: Load) -> Edited:
        edit(load)
        named = f"{request.namespace}/{request.name}; autoscaling/v1, Kind=Scale"
        why = "request to convert CR to an invalid group/version: autoscaling/v1"
        raise UnknownError(f"failed to convert new object ({named}) to proper version: {why}")

    return refuse


async def _change(
    scope: RequestScope, request: APIRequest, edit: Edit, manage_fields: ManageFields | None = None
) -> Reply:
    kind = request.kind
    paths = _paths(kind)
    view = View(lambda tree: to_scale(tree, paths), lambda tree, scale: from_scale(tree, scale, paths))
    outcome = await write(scope, request, change(scope, request, edit, manage_fields, view=view))
    return _as_scale(kind, outcome.reply())


def _as_scale(kind: ResourceInfo, reply: Reply) -> Reply:
    """Return a reply whose object is replaced by its Scale."""
    assert isinstance(reply.body, Item)
    tree, paths = orjson.loads(reply.body.data), _paths(kind)
    if paths.strict and not _has_count(tree, paths):
        why = f'the spec replicas field ".{".".join(paths.spec)}" does not exist'
        raise internal_error(why)
    return replace(reply, body=Item(encode(in_order(to_scale(tree, paths)))))


def _has_count(tree: Tree, paths: ScalePaths) -> bool:
    """Return whether an object has a replica count. Raises `UnknownError` if it is not a number."""
    try:
        typed_in(tree, paths.status, int)
        return typed_in(tree, paths.spec, int) is not None
    except TypeError as error:
        raise UnknownError(str(error)) from None


class _Scaling:
    """The body of a request for a Scale."""

    def __init__(self, request: APIRequest) -> None:
        assert request.subresource is not None
        self._request = request
        self._subresource: Subresource = request.subresource
        self._api_version = f"{self._subresource.group}/{self._subresource.version}"

    def replace(self, load: Load) -> Edited:
        """Return the object with the replicas of the Scale that was sent."""
        body = decode_body(self._request.http, self._api_version, self._subresource.kind)
        edited = self._laid_over(load(), body)
        note_object(body.tree)
        return edited

    def patch(self, patch: Patch, load: Load) -> Edited:
        """Return the object with its Scale patched."""
        tree, paths = load(), _paths(self._request.kind)
        scale = to_scale(tree, paths)
        if paths.strict and not _has_count(tree, paths):
            scale["spec"].pop("replicas", None)
        scale = patch.apply(scale, self._subresource.schema)
        if paths.strict and get_in(scale, ("spec", "replicas")) is None and not _has_count(tree, paths):
            raise BadRequest(f'the spec replicas field ".{".".join(paths.spec)}" cannot be empty')
        patch.check(scale, self._api_version, self._subresource.kind)
        return self._laid_over(tree, DecodedBody(scale, patch.duplicates), unfit)

    def application(self, scope: RequestScope) -> Application:
        """Return the apply configuration of the object that sets the replicas of the applied Scale."""
        request, subresource = self._request, self._subresource
        body = read_document(request, self._api_version, subresource.kind)
        warnings = check(request, body, subresource.schema, subresource.kind)
        scale = body.tree
        self._check(scale)
        presumed = {name: scale["metadata"][name] for name in _PRESUMED if name in scale["metadata"]}
        config: Tree = {"apiVersion": request.kind.api_version, "kind": request.kind.kind, "metadata": presumed}
        replicas = get_in(scale, ("spec", "replicas"))
        if replicas is not None:
            put_in(config, _paths(request.kind).spec, replicas)
        return Application(scope, request, config, warnings)

    def _laid_over(self, tree: Tree, body: DecodedBody, refuse: Callable[[str], ApiError] = BadRequest) -> Edited:
        """Return the object with the replicas of the Scale. The uid and resourceVersion of the Scale become
        preconditions.
        """
        scale, request = body.tree, self._request
        warnings = fit(request, body, self._subresource.schema, self._subresource.kind, refuse)
        metadata = scale.setdefault("metadata", {})
        check_name(request, metadata)
        check_namespace(request, metadata)
        self._check(scale)
        scaled = from_scale(tree, scale, _paths(request.kind))
        presumed = {name: metadata[name] for name in ("resourceVersion", "uid") if name in metadata}
        scaled["metadata"] = {**scaled["metadata"], **presumed}
        return Edited(scaled, warnings)

    def _check(self, scale: Tree) -> None:
        if _paths(self._request.kind).strict:
            return  # the validation of the custom object checks this
        replicas = get_in(scale, ("spec", "replicas")) or 0
        if replicas < 0:
            message = f"Invalid value: {replicas}: must be greater than or equal to 0"
            cause = Cause(reason="FieldValueInvalid", message=message, field="spec.replicas")
            raise invalid(self._subresource.group, self._subresource.kind, self._request.name, [cause])


def _paths(kind: ResourceInfo) -> ScalePaths:
    return kind.scale or ScalePaths()
