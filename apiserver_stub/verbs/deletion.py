"""Delete options (API concepts), and their effect on an object: marked for deletion, due earlier, or removed.

| object                   | request            | result                                                      |
|--------------------------|--------------------|-------------------------------------------------------------|
| live, its kind has grace | any                | marked: the deletion is due after the grace                 |
| live                     | any                | marked if it has finalizers, otherwise removed              |
| marked, grace running    | shorter grace      | due earlier; removed if neither grace nor finalizers remain |
| marked, grace running    | same or no grace   | unchanged, including its finalizers                         |
| marked, grace over       | any                | finalizers of the new policy; removed if none is left       |

A kind with a second list of finalizers (`Strategy.finalizers`) is always marked first, without a grace period, and
unchanged while that list is not empty.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from apiserver_stub.encode.body import decode_options
from apiserver_stub.encode.json import encode
from apiserver_stub.kinds.strategies.strategy import Strategy
from apiserver_stub.kinds.values.trees import get_in, put_in
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.audit import current_record
from apiserver_stub.verbs.query import flag, number, unsupported_dry_run, unsupported_value
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.common.api.errors import BadRequest, Cause, Invalid, invalid
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.timestamps import format_time, parse_time
from controller_manager.common.api.tree import Tree

# The finalizers that each propagation policy sets; the garbage collector reads them.
HOLDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"Background": (), "Orphan": ("orphan",), "Foreground": ("foregroundDeletion",)}
)
_KNOWN_POLICIES = ("Foreground", "Background", "Orphan", "nil")  # as in error messages; "nil": no policy
_HOLDS = frozenset(name for names in HOLDS.values() for name in names)
_GRACE, _WHEN = "deletionGracePeriodSeconds", "deletionTimestamp"
_LONGEST_GRACE = 1 << 31  # seconds; a much larger value overflows the date
IGNORE = "ignoreStoreReadErrorWithClusterBreakingPotential"
_ALL = "All"
_TYPE: Mapping[str, str] = MappingProxyType({"kind": "DeleteOptions", "apiVersion": f"meta.{GROUP_DOMAIN}/v1"})
_AUDITED: Mapping[str, str] = MappingProxyType(
    {"kind": "DeleteOptions", "apiVersion": f"meta.{GROUP_DOMAIN}/__internal"}
)
"""The type of delete options in audit events."""
_EXCLUDED = ("dryRun", "gracePeriodSeconds", "orphanDependents", "preconditions", "propagationPolicy")

_Seconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Preconditions(Model):
    """The uid and resourceVersion that the object must have."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Model):
    """The options of a delete request. Unset options get the default of the kind."""

    api_version: str = "v1"
    grace_period_seconds: _Seconds | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: Preconditions | None = None
    dry_run: tuple[str, ...] | None = None
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None

    @property
    def policy(self) -> str | None:
        """The requested propagation policy, from `propagationPolicy` or the deprecated `orphanDependents`. None if
        neither is set.
        """
        if self.orphan_dependents is not None:
            return "Orphan" if self.orphan_dependents else "Background"
        return self.propagation_policy

    def as_tree(self) -> Tree:
        """Return the options as admission sees them."""
        return {**_TYPE, **msgspec.to_builtins(self), **_TYPE}


async def read_options(scope: RequestScope, request: APIRequest) -> tuple[APIRequest, DeleteOptions]:
    """Return the options of a delete, and the request, marked as a dry run if the options ask for one. Raises
    `BadRequest` or `Invalid`.

    If there is a body, query parameters are ignored, except `dryRun`: ignoring it could delete an object by mistake.
    """
    if not request.http.body:
        return as_options(scope, request, _in_query(request.query))
    options = await scope.run_of(request)(partial(decode_options, request.http))
    if (record := current_record()) is not None:
        record.note_document(lambda: encode({**options, **_AUDITED}))
    return as_options(scope, request, options | _dry(request.query))


def as_options(scope: RequestScope, request: APIRequest, tree: Mapping[str, Any]) -> tuple[APIRequest, DeleteOptions]:
    """Return the same as `read_options` for options that are already a tree."""
    try:
        options = msgspec.convert(tree, DeleteOptions)
    except msgspec.ValidationError as error:
        raise BadRequest(f"DeleteOptions cannot be read: {error}") from None
    _check_version(request, options.api_version)
    if not scope.features.unsafe_deletion:
        options = msgspec.structs.replace(options, ignore_store_read_error_with_cluster_breaking_potential=None)
    causes = list(_causes(options, tree))
    if causes:
        raise refused(causes)
    if options.dry_run:
        request = msgspec.structs.replace(request, query={**request.query, "dryRun": _ALL})
    return request, options


def refused(causes: list[Cause]) -> Invalid:
    """Return the error for invalid delete options."""
    return invalid(f"meta.{GROUP_DOMAIN}", "DeleteOptions", "", causes)


def _in_query(query: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "gracePeriodSeconds": number(query, "gracePeriodSeconds"),
        "propagationPolicy": query.get("propagationPolicy"),
        "orphanDependents": flag(query, "orphanDependents"),
        "preconditions": {"uid": query["uid"]} if query.get("uid") else None,
        IGNORE: flag(query, IGNORE),
    }
    return _dry(query) | {name: value for name, value in options.items() if value is not None}


def _dry(query: Mapping[str, str]) -> dict[str, Any]:
    return {"dryRun": [query["dryRun"] or _ALL]} if "dryRun" in query else {}


def _check_version(request: APIRequest, version: str) -> None:
    """Raises `BadRequest` unless the options are in the core group, in `meta.k8s.io` or in the group of the
    resource.
    """
    if version.rpartition("/")[0] not in ("", f"meta.{GROUP_DOMAIN}", request.kind.group):
        raise BadRequest(f"the apiVersion in the data ({version}) has no DeleteOptions for {request.kind.name}")


def _causes(options: DeleteOptions, tree: Mapping[str, Any]) -> Iterator[Cause]:
    policy = options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        yield _wrong("propagationPolicy", f'"{policy}": orphanDependents and deletionPropagation cannot be both set')
    if policy is not None and policy not in HOLDS:
        yield unsupported_value("propagationPolicy", policy, _KNOWN_POLICIES)
    if any(value != _ALL for value in options.dry_run or ()):
        yield unsupported_dry_run(options.dry_run or ())
    if options.ignore_store_read_error_with_cluster_breaking_potential:
        for name in _EXCLUDED:
            if tree.get(name) not in (None, []):
                yield _wrong(IGNORE, f"true: cannot be set together with .{name}")


def _wrong(field: str, why: str) -> Cause:
    return Cause(reason="FieldValueInvalid", message=f"Invalid value: {why}", field=field)


def begin_deletion(
    tree: Tree, strategy: Strategy, now: datetime, grace: int | None = None, policy: str | None = None
) -> bool:
    """Apply a delete request to the object in place. Return whether the object must be removed now; `tree` is then its
    final state. `grace` and `policy` are None if the request does not set them.
    """
    metadata = tree["metadata"]
    begins, running = _WHEN not in metadata, metadata.get(_GRACE) or 0
    grace = 1 if grace is not None and grace < 0 else grace
    if running and (grace is None or grace >= running):
        return False
    if not begins and strategy.finalizers and get_in(tree, strategy.finalizers):
        return False
    finalizers = propagate(metadata.get("finalizers", []), strategy.dependents, policy)
    if begins and strategy.deletion_finalizer and strategy.deletion_finalizer not in finalizers:
        finalizers.append(strategy.deletion_finalizer)
    put_in(metadata, ("finalizers",), finalizers or None)
    held = "finalizers" in metadata
    if running:
        _shorten(metadata, running, grace or 0)
    elif begins:
        if not (held or strategy.graceful or strategy.finalizers):
            return True
        _begin(tree, strategy, now, grace)
    elif held:
        metadata[_GRACE] = 0
    return not (held or metadata.get(_GRACE) or (begins and strategy.finalizers))


def grace_of(tree: Tree) -> int | None:
    """Return the grace period of a terminating object. None if it is not terminating or its kind has no grace
    period.
    """
    grace: int | None = tree["metadata"].get(_GRACE)
    return grace


def propagate(finalizers: list[str], usual: str, policy: str | None) -> list[str]:
    """Return the finalizers of an object deleted with a propagation policy (None: the request names no policy).

    Without a policy, the finalizers that the object already has decide, then the default of the kind (`usual`). A kind
    with an empty default never propagates.
    """
    present = [name for name in finalizers if name in _HOLDS][:1]
    if not usual:
        wanted: tuple[str, ...] = ()
    else:
        wanted = HOLDS[policy] if policy else tuple(present) or HOLDS[usual]
    return [
        *(name for name in finalizers if name not in _HOLDS or name in wanted),
        *(name for name in wanted if name not in finalizers),
    ]


def _begin(tree: Tree, strategy: Strategy, now: datetime, asked: int | None) -> None:
    metadata = tree["metadata"]
    grace = min(strategy.grace_period(tree, asked), _LONGEST_GRACE)
    metadata[_WHEN] = format_time(now + timedelta(seconds=grace))
    if not strategy.finalizers and not strategy.deletion_finalizer:
        metadata[_GRACE] = grace
    strategy.mark_deleted(tree)


def _shorten(metadata: Tree, running: int, grace: int) -> None:
    metadata[_WHEN] = format_time(parse_time(metadata[_WHEN]) - timedelta(seconds=running - grace))
    metadata[_GRACE] = grace
