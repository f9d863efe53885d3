"""Preconditions of writes: name, namespace, uid and resourceVersion. `check_*` functions raise the error; others return
it.
"""

from msgspec.structs import replace

from apiserver_stub.common.error_list import IMMUTABLE
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.request_info import RequestInfo
from apiserver_stub.verbs.query import as_revision, is_revision
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api import errors
from controller_manager.common.api.errors import (
    AlreadyExists,
    BadRequest,
    Cause,
    Conflict,
    InternalError,
    NotFound,
    UnknownError,
    conflict,
    forbidden,
    invalid,
)
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving.authorization import Authorizer, AuthorizerAttributes, Decision, refusal

_UNSAFE_DELETE = "unsafe-delete-ignore-read-errors"  # the verb


def check_name(request: APIRequest, metadata: Tree) -> None:
    """Raises `BadRequest` unless the object has the name in the URL."""
    name = metadata.get("name", "")
    if name != request.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({request.name})")


def check_namespace(request: APIRequest, metadata: Tree) -> None:
    """Set the namespace of the URL on the object, or remove it from a cluster-scoped one. Raises `BadRequest` if the
    object names another namespace.
    """
    if not request.namespace:
        metadata.pop("namespace", None)
        return
    if metadata.get("namespace", request.namespace) not in ("", request.namespace):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = request.namespace


def check_version(request: APIRequest, metadata: Tree, current: Tree) -> None:
    """Check the uid and resourceVersion of an update, then set those of the current state. Raises `Conflict` if they
    differ.
    """
    uid: str = metadata.get("uid") or current["uid"]
    if uid != current["uid"]:
        raise mismatch(request, "UID", uid, current["uid"])
    version = metadata.get("resourceVersion", "")
    if version in ("", "0"):
        _check_unconditional(request)
    elif str(as_revision(version, UnknownError)) != current["resourceVersion"]:
        raise stale(request)
    metadata["resourceVersion"] = current["resourceVersion"]
    metadata["uid"] = uid


def check_new(metadata: Tree) -> None:
    """Raises `UnknownError` if a new object has a resourceVersion. Malformed values are ignored."""
    version = metadata.get("resourceVersion", "")
    if is_revision(version) and int(version):
        raise UnknownError("resourceVersion should not be set on objects to be created")


def refuse_uid(request: APIRequest, metadata: Tree) -> None:
    """Raises `Conflict` if the object has a uid: it refers to an existing object, and there is none. The
    resourceVersion is dropped.
    """
    metadata.pop("resourceVersion", None)
    if metadata.get("uid"):
        kind = request.kind
        why = "the object names a uid, and no existing object was found"
        raise conflict(kind.group, kind.plural, request.name, why)


def keep_uid(request: APIRequest, metadata: Tree, live: Tree) -> None:
    """Raises `Invalid` if a patch changes the uid. Removing it is allowed. If the resourceVersion differs too, the
    later check of it raises the error.
    """
    if metadata.get("resourceVersion") not in (None, "", "0", live["resourceVersion"]):
        return
    if metadata.get("uid") not in (None, "", live["uid"]):
        kind = request.kind
        message = f'Invalid value: "{metadata["uid"]}": {IMMUTABLE}'
        cause = Cause(reason="FieldValueInvalid", message=message, field="metadata.uid")
        raise invalid(kind.group, kind.kind, request.name, [cause, cause] if kind.custom else [cause])


def check_may_create(kind: ResourceInfo, name: str) -> None:
    """Raises `Forbidden` if the CustomResourceDefinition of the kind is terminating."""
    if kind.terminating:
        why = "create not allowed while custom resource definition is terminating"
        raise forbidden(kind.group, kind.plural, name, why)


async def check_create_authorized(authorizer: Authorizer, request: APIRequest) -> None:
    """Check that the user may create the object of an update or patch. Raises `Forbidden`, or `InternalError` if the
    authorizer failed.
    """
    attributes = _attributes(request, "create", request.http.path)
    decision, reason, error = await authorizer.authorize(attributes)
    if decision is not Decision.ALLOW:
        raise InternalError(error) if error else refusal(attributes, reason)


async def check_unsafe_delete_authorized(authorizer: Authorizer, request: APIRequest) -> None:
    """Check that the user may delete an unreadable object. Raises `Forbidden`."""
    kind = request.kind
    decision, reason, error = await authorizer.authorize(_attributes(request, _UNSAFE_DELETE))
    if error:
        raise forbidden(kind.group, kind.plural, request.name, f"failed to authorize {_UNSAFE_DELETE}: {error}")
    if decision is not Decision.ALLOW:
        why = f"the verb {_UNSAFE_DELETE} is not allowed: {reason}"
        raise forbidden(kind.group, kind.plural, request.name, why)


def _attributes(request: APIRequest, verb: str, path: str = "") -> AuthorizerAttributes:
    """Return authorizer attributes for another verb on the object of the request."""
    asked = RequestInfo.of(request.http.method, request.http.path, {}).attributes(request.user)
    return replace(asked, verb=verb, path=path)


def object_not_found(request: APIRequest) -> NotFound:
    """Return the error for an object that does not exist."""
    return errors.not_found(request.kind.group, request.kind.plural, request.name)


def already_exists(request: APIRequest, name: str, row: Row | None) -> AlreadyExists:
    """Return the error for a create if the object exists. The message says if the object is being deleted."""
    refusal = errors.already_exists(request.kind.group, request.kind.plural, name)
    if row is not None and not isinstance(row, CorruptRow) and row.field("metadata.deletionTimestamp"):
        return AlreadyExists(f"object is being deleted: {refusal.message}", refusal.details)
    return refusal


def stale(request: APIRequest) -> Conflict:
    """Return the error for an object that has changed since the caller read it."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(request.kind.group, request.kind.plural, request.name, why)


def mismatch(request: APIRequest, what: str, presumed: str, found: str) -> Conflict:
    """Return the error for a precondition that does not match the object."""
    why = f"Precondition failed: {what} in precondition: {presumed}, {what} in object meta: {found}"
    return conflict(request.kind.group, request.kind.plural, request.name, why)


def _check_unconditional(request: APIRequest) -> None:
    kind = request.kind
    if not kind.strategy.unconditional_update:
        message = "Invalid value: 0: must be specified for an update"
        cause = Cause(reason="FieldValueInvalid", message=message, field="metadata.resourceVersion")
        raise invalid(kind.group, kind.plural, request.name, [cause])
