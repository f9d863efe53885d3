"""Parse the spec of a TokenRequest and check what it may request (authentication/v1)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from controller_manager.common.api.errors import BadRequest, Cause
from controller_manager.common.api.model import Model
from controller_manager.common.api.tree import Tree

SHORTEST = 600
LONGEST = 1 << 32
_USUAL = 3600
# The lifetime in seconds that kubelets request by default, and the one they get if tokens are extended.
_PROJECTED = 3607
_EXTENDED = 365 * 24 * 3600


class BoundTo(Model):
    """The object that a token is bound to. The token is invalid without it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def group(self) -> str:
        """Return the API group of the object, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def type(self) -> str:
        """Return the type as in `apps/v1, Kind=Deployment`."""
        return f"{self.api_version if self.group else f'/{self.api_version}'}, Kind={self.kind}"


class TokenSpec(Model):
    """The spec of a TokenRequest: audiences, seconds until it expires, and the object it is bound to."""

    audiences: tuple[str, ...] = ()
    expiration_seconds: int = _USUAL
    bound_object_ref: BoundTo | None = None


class Bindable(Model):
    """A kind that tokens can be bound to: the name of its rows, its scope and its claim.

    `runs_as` and `runs_on` are the fields with its service account and its node, if it has them.
    """

    storage: str
    namespaced: bool
    claim: str
    runs_as: str = ""
    runs_on: str = ""


NODES = Bindable(storage="nodes", namespaced=False, claim="node")
_BINDABLE: Mapping[str, Bindable] = MappingProxyType({
    "Pod": Bindable(
        storage="pods", namespaced=True, claim="pod", runs_as="spec.serviceAccountName", runs_on="spec.nodeName"
    ),
    "Secret": Bindable(storage="secrets", namespaced=True, claim="secret"),
    "Node": NODES,
})  # fmt: skip


def read_spec(tree: Tree) -> TokenSpec:
    """Return the typed `spec` of a TokenRequest, with defaults for absent fields."""
    return msgspec.convert(
        {name: value for name, value in tree.get("spec", {}).items() if value is not None}, TokenSpec
    )


def problems(spec: TokenSpec) -> list[Cause]:
    """Return the errors of the spec."""
    seconds = spec.expiration_seconds
    if seconds < SHORTEST:
        return [_invalid_lifetime(seconds, "may not specify a duration less than 10 minutes")]
    if seconds > LONGEST:
        return [_invalid_lifetime(seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def bindable(ref: BoundTo) -> Bindable:
    """Return the `Bindable` of a bound object. Raises `BadRequest` for a kind that tokens cannot be bound to."""
    found = None if ref.group else _BINDABLE.get(ref.kind)
    if found is None:
        raise BadRequest(f"cannot bind token to object of type {ref.type}")
    return found


def life(spec: TokenSpec, *, extended: bool) -> tuple[int, int | None]:
    """Return the seconds until a token expires, and the seconds until its use triggers a warning, if earlier.

    If `extended`, the default lifetime of projected tokens is extended, because some programs read a token only once.
    """
    seconds = spec.expiration_seconds
    return (_EXTENDED, seconds) if extended and seconds == _PROJECTED else (seconds, None)


def answered(tree: Tree, spec: TokenSpec, status: dict[str, Any]) -> Tree:
    """Return the response to a TokenRequest, with the granted values."""
    granted = {"audiences": list(spec.audiences), "expirationSeconds": spec.expiration_seconds}
    return {**tree, "spec": {"boundObjectRef": None, **tree.get("spec", {}), **granted}, "status": status}


def _invalid_lifetime(seconds: int, why: str) -> Cause:
    message = f"Invalid value: {seconds}: {why}"
    return Cause(reason="FieldValueInvalid", message=message, field="spec.expirationSeconds")
