"""How to delete, from the body of a request or, when it has none, from its query (API concepts, Delete options)."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec

from apiserver_stub.call import APIRequest
from apiserver_stub.encode.body import decode_options
from apiserver_stub.verbs.deletion import HOLDS
from apiserver_stub.verbs.query import flag, number, unsupported_value
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.api.errors import BadRequest, Cause, Invalid, invalid
from controller_manager.api.model import Model
from controller_manager.api.platform import GROUP_DOMAIN

IGNORE = "ignoreStoreReadErrorWithClusterBreakingPotential"
_ALL = "All"
_EXCLUDED = ("dryRun", "gracePeriodSeconds", "orphanDependents", "preconditions", "propagationPolicy")

_Seconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Preconditions(Model):
    """What must hold of the object."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Model):
    """The choices of a caller; what it leaves open is the kind's."""

    api_version: str = "v1"
    grace_period_seconds: _Seconds | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: Preconditions | None = None
    dry_run: tuple[str, ...] | None = None
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None

    @property
    def policy(self) -> str | None:
        """The policy of propagation that is asked for, in the old or the new way; None if the caller does not say."""
        if self.orphan_dependents is not None:
            return "Orphan" if self.orphan_dependents else "Background"
        return self.propagation_policy


async def read_options(scope: RequestScope, request: APIRequest) -> tuple[APIRequest, DeleteOptions]:
    """The options of a delete, and the request as a dry run if they ask for one. Raises `BadRequest` or `Invalid`.

    A body speaks for itself: what it leaves out is not looked for in the query. Only a dry run is one wherever it is
    asked for, since the other way round something would be lost.
    """
    if not request.http.body:
        return as_options(scope, request, _in_query(request.query))
    said = await scope.run_of(request.http)(partial(decode_options, request.http))
    return as_options(scope, request, said | _dry(request.query))


def as_options(scope: RequestScope, request: APIRequest, tree: Mapping[str, Any]) -> tuple[APIRequest, DeleteOptions]:
    """The same with the options as a tree."""
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
    """The refusal of options that make no sense."""
    return invalid(f"meta.{GROUP_DOMAIN}", "DeleteOptions", "", causes)


def _in_query(query: Mapping[str, str]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "gracePeriodSeconds": number(query, "gracePeriodSeconds"),
        "propagationPolicy": query.get("propagationPolicy"),
        "orphanDependents": flag(query, "orphanDependents"),
        "preconditions": {"uid": query["uid"]} if query.get("uid") else None,
        IGNORE: flag(query, IGNORE),
    }
    return _dry(query) | {name: value for name, value in said.items() if value is not None}


def _dry(query: Mapping[str, str]) -> dict[str, Any]:
    return {"dryRun": [query["dryRun"] or _ALL]} if "dryRun" in query else {}


def _check_version(request: APIRequest, version: str) -> None:
    """Clients send these options in the core group, in `meta`, or in the group of what they delete."""
    if version.rpartition("/")[0] not in ("", f"meta.{GROUP_DOMAIN}", request.kind.group):
        raise BadRequest(
            f"the apiVersion in the data ({version}) is none that has DeleteOptions for {request.kind.name}"
        )


def _causes(options: DeleteOptions, tree: Mapping[str, Any]) -> Iterator[Cause]:
    policy = options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        yield _wrong("propagationPolicy", f'"{policy}": orphanDependents and propagationPolicy cannot be both set')
    if policy is not None and policy not in HOLDS:
        yield unsupported_value("propagationPolicy", policy, sorted(HOLDS))
    for value in options.dry_run or ():
        if value != _ALL:
            yield unsupported_value("dryRun", value, [_ALL])
    if options.ignore_store_read_error_with_cluster_breaking_potential:
        for name in _EXCLUDED:
            if tree.get(name) not in (None, []):
                yield _wrong(IGNORE, f"true: cannot be set together with .{name}")


def _wrong(field: str, why: str) -> Cause:
    return Cause(reason="FieldValueInvalid", message=f"Invalid value: {why}", field=field)
