"""Decode request bodies against their schemas. Types are always checked; `fieldValidation` decides about unknown and
duplicate fields.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType

import msgspec

from apiserver_stub.common.offload import Offload
from apiserver_stub.encode.body import (
    APPLY_YAML,
    JSON,
    YAML,
    DecodedBody,
    decode_body,
    decode_custom_body,
    decode_document,
    media_type,
    run_of,
)
from apiserver_stub.encode.json import as_written, encode, in_order
from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from apiserver_stub.kinds.schema.clean import Report, sweep
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.schema.schema_types import fitting, takes
from apiserver_stub.kinds.shared_parts import fit_others, share
from apiserver_stub.kinds.values.trees import deep_copy
from apiserver_stub.patch.conformance import check_typed
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.audit import current_record
from apiserver_stub.verbs.preconditions import check_name, check_namespace
from apiserver_stub.verbs.query import check_write, field_validation
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.common.api.errors import ApiError, BadRequest, UnknownError
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request

Warnings = tuple[str, ...]

# Removed versions that clients still send; their fields are the same.
_OLDER: Mapping[str, tuple[str, ...]] = MappingProxyType({"Eviction": ("policy/v1beta1",)})


async def read_new(offload: Offload, request: APIRequest) -> tuple[Tree, Warnings]:
    """Return the object in the body of a create, with the namespace of the URL. Raises `BadRequest` and other
    errors.
    """
    check_write(request)
    tree, warnings = await run_of(offload, request)(partial(read_object, request))
    check_namespace(request, tree["metadata"])
    return tree, warnings


async def read_body(
    scope: RequestScope, request: APIRequest, *, named: bool = True, completed: Callable[[Tree], Tree] = dict
) -> tuple[Tree, Warnings]:
    """Return the body of a request for a subresource with its own kind (such as Eviction). It always has metadata, with
    the namespace of the URL and, if `named` is true, the name of the URL. The audit event records the result of
    `completed`. Raises `BadRequest`.
    """
    subresource = request.subresource
    assert subresource is not None
    body, warnings = await scope.run_of(request)(partial(_fitted, request, subresource))
    metadata = body.tree.setdefault("metadata", {})
    note_object(completed(body.tree))
    if named:
        check_name(request, metadata)
    check_namespace(request, metadata)
    return body.tree, warnings


def _fitted(request: APIRequest, subresource: Subresource) -> tuple[DecodedBody, Warnings]:
    version = f"{subresource.group}/{subresource.version}" if subresource.group else subresource.version
    body = decode_body(request.http, version, subresource.kind, _OLDER.get(subresource.kind, ()))
    return body, fit(request, body, subresource.schema, subresource.kind)


def read_object(request: APIRequest, stored: Tree | None = None) -> tuple[Tree, Warnings]:
    """Return the object in the body; it always has metadata. An object that replaces a `stored` one gets its defaults
    and shares equal parts with it. Raises `BadRequest` and other errors.
    """
    kind = request.kind
    if kind.custom:
        body = decode_custom_body(request.http, kind.api_version, kind.kind)
    else:
        body = decode_body(request.http, kind.api_version, kind.kind)
    if stored is None:
        warnings = fit(request, body, kind.schema, kind.kind)
    else:
        share(body.tree, stored, kind)
        warnings = fit_beside(request, body, stored)
    body.tree.setdefault("metadata", {})
    note_object(body.tree, kind)
    return body.tree, warnings


def note_object(tree: Tree, kind: ResourceInfo | None = None) -> None:
    """Add the request object to the audit event: as sent, with the defaults of its kind."""
    if (record := current_record()) is not None:
        record.note_object(tree["metadata"], partial(_as_sent, tree, kind))


def note_unread(request: APIRequest) -> None:
    """Add the object of an update that was rejected before it was decoded to the audit event, if it can be decoded."""
    record = current_record()
    if record is not None and not record.has_object and request.subresource is None:
        with suppress(ApiError):
            read_object(request)


def note_patch(request: APIRequest) -> None:
    """Add the patch of the request to the audit event: JSON as sent, an apply configuration in YAML or CBOR as JSON,
    and an unreadable body as a string.
    """
    if (record := current_record()) is not None:
        record.note_document(partial(_document, request.http))


def _document(http: Request) -> bytes:
    data = http.body
    try:
        return msgspec.json.format(data.decode(), indent=-1).encode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            return encode(decode_document(media_type(http), data).tree)
        except ApiError:
            return encode(data.decode("utf-8", "replace"))


def _as_sent(tree: Tree, kind: ResourceInfo | None = None) -> bytes:
    """Return an object as JSON for the audit event. The tree is not changed."""
    sent = deep_copy(tree)
    if kind is not None:
        apply_defaults(sent, kind)
    return encode(in_order(sent))


def fit(
    request: APIRequest, body: DecodedBody, node: Schema, kind: str, refuse: Callable[[str], ApiError] = BadRequest
) -> Warnings:
    """Fit the tree to `node` in place and return the warnings about unknown and duplicate fields. Raises the error that
    `refuse` builds.
    """
    return _fit(request, body, partial(fit_tree, body.tree, node), kind, refuse)


def fit_beside(
    request: APIRequest, body: DecodedBody, stored: Tree, refuse: Callable[[str], ApiError] = BadRequest
) -> Warnings:
    """Fit the request object as `fit` does and set its defaults. Parts shared with the stored object are skipped."""
    return _fit(request, body, partial(fit_others, body.tree, stored, request.kind), request.kind.kind, refuse)


def _fit(
    request: APIRequest, body: DecodedBody, fitted: Callable[[], Report], kind: str, refuse: Callable[[str], ApiError]
) -> Warnings:
    metadata = body.tree.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        # An empty list resets managedFields but would be dropped as empty; a list with one empty entry means the same.
        metadata["managedFields"] = [{}]
    warnings = _judge(request, body, fitted(), kind, refuse)
    metadata = body.tree.get("metadata")
    return (*warnings, *_drop_repeated_owners(metadata)) if metadata and "ownerReferences" in metadata else warnings


def _drop_repeated_owners(metadata: Tree) -> Warnings:
    """Drop duplicate owner references and return a warning that lists their uids."""
    owners: list[Tree] = metadata["ownerReferences"]
    distinct: dict[frozenset[tuple[str, str | bool]], Tree] = {}
    repeated: dict[str, None] = {}
    for owner in owners:
        if distinct.setdefault(frozenset(owner.items()), owner) is not owner:
            repeated[owner.get("uid", "")] = None
    if not repeated:
        return ()
    metadata["ownerReferences"] = list(distinct.values())
    return (f"metadata.ownerReferences has duplicate entries; one of each is kept; uids: {', '.join(repeated)}",)


def check(request: APIRequest, body: DecodedBody, node: Schema, kind: str) -> Warnings:
    """Check the tree as `fit` does without changing it; nulls stay. Unknown fields are rejected at every validation
    level, since no manager could own them. Raises `UnknownError` for unknown fields and wrong values, and `BadRequest`
    for duplicate fields.
    """
    report, is_custom = Report(), request.kind.custom and node is request.kind.schema
    if not is_custom and takes(fitting(node), body.tree):
        if not body.duplicates:
            return ()
    else:
        check_typed(body.tree, node, f"failed to create typed patch object ({named_object(request)})")
        if not is_custom:
            report = sweep(deep_copy(body.tree), node)
        if report.wrong:
            raise UnknownError(_unfit(request, body, kind, "; ".join(report.wrong)))
    return _judge(request, body, report, kind, BadRequest)


def named_object(request: APIRequest) -> str:
    """Return the object's identity as error messages of server-side apply show it."""
    return f"{request.namespace}/{request.name}; {request.kind.api_version}, Kind={request.kind.kind}"


def _judge(
    request: APIRequest, body: DecodedBody, report: Report, kind: str, refuse: Callable[[str], ApiError]
) -> Warnings:
    level = field_validation(request.query)
    if report.wrong:
        raise refuse(_unfit(request, body, kind, "; ".join(report.wrong)))
    if level == "Ignore" or not (report.unknown or body.duplicates):
        return ()
    media, duplicates = media_type(request.http), body.duplicates
    unknown = tuple(f'unknown field "{path}"' for path in report.unknown)
    if level == "Strict" and duplicates and media in (YAML, APPLY_YAML):
        duplicates = ("\n  ".join(("yaml: unmarshal errors:", *duplicates)),)
    problems = (*duplicates, *unknown)
    if duplicates and unknown and media == JSON and not request.kind.custom:
        problems = as_written(request.http.body, problems)
    if level == "Strict":
        why = f"strict decoding error: {', '.join(problems)}"
        raise refuse(_unfit(request, body, kind, why) if refuse is BadRequest else why)
    return problems


def _unfit(request: APIRequest, body: DecodedBody, kind: str, why: str) -> str:
    version = str(body.tree.get("apiVersion", request.kind.api_version)).rpartition("/")[2]
    return f'{kind} in version "{version}" cannot be handled as a {kind}: {why}'
