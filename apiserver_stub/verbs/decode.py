"""What a caller sent, fitted to its schema: unknown and repeated fields as `fieldValidation` says, types always."""

from collections.abc import Callable

from apiserver_stub.call import APIRequest, Tree
from apiserver_stub.encode.body import Body, decode_body
from apiserver_stub.kinds.clean import Report, clean_tree, sweep
from apiserver_stub.kinds.schema import Schema
from apiserver_stub.kinds.shapes import takes
from apiserver_stub.kinds.trees import deep_copy, get_in, put_in
from apiserver_stub.verbs.query import field_validation
from controller_manager.api.errors import ApiError, BadRequest

Warnings = tuple[str, ...]


def read_object(call: APIRequest) -> tuple[Tree, Warnings]:
    """The object in the body, of the kind of the call, always with metadata. Raises `BadRequest` and others."""
    kind = call.kind
    body = decode_body(call.http, kind.api_version, kind.kind)
    warnings = fit(call, body, kind.schema, kind.kind)
    body.tree.setdefault("metadata", {})
    return body.tree, warnings


def fit(
    call: APIRequest, body: Body, node: Schema, kind: str, refuse: Callable[[str], ApiError] = BadRequest
) -> Warnings:
    """Fit the tree to `node` in place; what became of unknown and repeated fields is told to the caller. Raises what
    `refuse` makes of a reason.
    """
    if get_in(body.tree, ("metadata", "managedFields")) == []:
        # This asks for something, and would not survive the cleaning; one empty entry asks for the same.
        put_in(body.tree, ("metadata", "managedFields"), [{}])
    warnings = _judge(call, body, clean_tree(body.tree, node), kind, refuse)
    return (*warnings, *_drop_repeated_owners(body.tree))


def _drop_repeated_owners(tree: Tree) -> Warnings:
    """Keep each owner reference once, and tell the caller of those that came again."""
    owners: list[Tree] = get_in(tree, ("metadata", "ownerReferences")) or []
    distinct: dict[frozenset[tuple[str, str | bool]], Tree] = {}
    repeated: dict[str, None] = {}
    for owner in owners:
        if distinct.setdefault(frozenset(owner.items()), owner) is not owner:
            repeated[owner.get("uid", "")] = None
    if not repeated:
        return ()
    tree["metadata"]["ownerReferences"] = list(distinct.values())
    return (f"metadata.ownerReferences has duplicate entries, of which one is kept; their uids: {', '.join(repeated)}",)


def check(call: APIRequest, body: Body, node: Schema, kind: str) -> Warnings:
    """As `fit`, but the tree stays as it is, with its nulls, and unknown fields are refused whatever the caller asks
    for: nobody could own them. Raises `BadRequest`.
    """
    report = Report() if takes(node.fitting, body.tree) else sweep(deep_copy(body.tree), node)
    if report.unknown:
        unknown = ", ".join(report.unknown)
        raise BadRequest(f"the applied configuration has fields that are not in the schema: {unknown}")
    return _judge(call, body, report, kind, BadRequest)


def _judge(call: APIRequest, body: Body, report: Report, kind: str, refuse: Callable[[str], ApiError]) -> Warnings:
    level = field_validation(call.query)
    if report.wrong:
        version = str(body.tree.get("apiVersion", call.kind.api_version)).rpartition("/")[2]
        raise refuse(f'{kind} in version "{version}" cannot be handled as a {kind}: {"; ".join(report.wrong)}')
    if level == "Ignore" or not (report.unknown or body.duplicates):
        return ()
    problems = (
        *(f'unknown field "{path}"' for path in report.unknown),
        *(f'duplicate field "{path}"' for path in body.duplicates),
    )
    if level == "Strict":
        raise refuse(f"strict decoding error: {', '.join(problems)}")
    return problems
