"""How to delete, from the body or the query of a request (document 1, Delete options)."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.call import Call
from apiserver_stub.encode.body import decode_options
from apiserver_stub.verbs.query import flag, number
from controller_manager.api.errors import BadRequest, Cause, Invalid, invalid
from controller_manager.api.model import Model
from controller_manager.api.platform import GROUP_DOMAIN

# What a policy makes of the finalizers by which the garbage collector learns of it.
HOLDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"Background": (), "Orphan": ("orphan",), "Foreground": ("foregroundDeletion",)}
)
_ALL = "All"


class Preconditions(Model):
    """What must hold of the object."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Model):
    """The choices of a caller; what it leaves open is the kind's."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: Preconditions | None = None
    dry_run: tuple[str, ...] | None = None

    @property
    def finalizers(self) -> tuple[str, ...] | None:
        """The finalizers the choice of propagation asks for; None leaves them as they are."""
        if self.orphan_dependents is not None:
            return HOLDS["Orphan" if self.orphan_dependents else "Background"]
        return HOLDS[self.propagation_policy] if self.propagation_policy else None


def read_options(call: Call) -> tuple[Call, DeleteOptions]:
    """The options of a delete, and the call as a dry run if the body asks for one. Raises `BadRequest` or `Invalid`."""
    return as_options(call, decode_options(call.request))


def as_options(call: Call, tree: Mapping[str, Any]) -> tuple[Call, DeleteOptions]:
    """The same with the options as a tree; where they are silent the query speaks."""
    query: dict[str, Any] = {
        "gracePeriodSeconds": number(call.query, "gracePeriodSeconds"),
        "propagationPolicy": call.query.get("propagationPolicy"),
        "orphanDependents": flag(call.query, "orphanDependents"),
    }
    try:
        options = msgspec.convert(query | dict(tree), DeleteOptions)
    except msgspec.ValidationError as error:
        raise BadRequest(f"DeleteOptions cannot be read: {error}") from None
    _check(options)
    if options.dry_run:
        call = replace(call, query={**call.query, "dryRun": _ALL})
    return call, options


def _check(options: DeleteOptions) -> None:
    if options.dry_run and set(options.dry_run) != {_ALL}:
        raise BadRequest(f'dryRun: Unsupported value: {list(options.dry_run)}: supported values: "{_ALL}"')
    policy = options.propagation_policy
    if policy and policy not in HOLDS:
        known = ", ".join(f'"{name}"' for name in HOLDS)
        raise _refused(f'Unsupported value: "{policy}": supported values: {known}', "FieldValueNotSupported")
    if policy and options.orphan_dependents is not None:
        raise _refused("Invalid value: orphanDependents and propagationPolicy cannot be both set", "FieldValueInvalid")


def _refused(message: str, reason: str) -> Invalid:
    cause = Cause(reason=reason, message=message, field="propagationPolicy")
    return invalid(f"meta.{GROUP_DOMAIN}", "DeleteOptions", "", [cause])
