"""Target and errors of policy mutations, as plain values."""

from typing import NamedTuple, Protocol

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.matching import GroupVersionKind, kind_of
from apiserver_stub.admission.policies.index import Exclusion
from apiserver_stub.admission.policies.inputs import RequestInputs, Versioned
from apiserver_stub.common.offload import StepRunner
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.schema import Schema
from controller_manager.common.api.tree import Tree


class MutationError(Exception):
    """A policy cannot be applied to an object; the message is shown to users."""


class MutationTarget(NamedTuple):
    """The target of a mutation: an object of a resource in the matched version, or of its subresource."""

    info: ResourceInfo
    attributes: Attributes

    @property
    def kind(self) -> GroupVersionKind:
        """Return the type of the object."""
        return kind_of(self.info, self.attributes.subresource)

    def __str__(self) -> str:
        group, version, kind = self.kind
        return f"{group}/{version}, Kind={kind}"

    @property
    def schema(self) -> Schema:
        """Return the schema of the object."""
        part = self.info.subresources.get(self.attributes.subresource)
        return self.info.schema if part is None or self.is_own_kind else part.schema

    @property
    def is_own_kind(self) -> bool:
        """Return whether the object is the resource itself, as its defaults are for."""
        return self.kind == GroupVersionKind(self.info.group, self.info.version, self.info.kind)

    @property
    def is_described(self) -> bool:
        """Return whether the OpenAPI document of the group version contains the type, which mutations require."""
        mine = (self.kind.group, self.kind.version) == (self.info.group, self.info.version)
        return mine and self.attributes.operation != "connect"


class Mutator(Protocol):
    """The compiled expressions of a mutating policy: `mutations` of them change the object in order. `again` means that
    the policy allows reinvocation; `exclusion` is the cheap part of its match conditions.
    """

    mutations: int
    again: bool
    exclusion: Exclusion | None

    async def matches(self, inputs: RequestInputs, versioned: Versioned, params: Tree | None, run: StepRunner) -> bool:
        """Return whether the match conditions hold. Raises `MutationError` if they cannot be evaluated."""

    async def mutate(
        self,
        number: int,
        target: MutationTarget,
        inputs: RequestInputs,
        versioned: Versioned,
        params: Tree | None,
        run: StepRunner,
    ) -> Tree:
        """Return a new tree of the object after a mutation, with defaults. Raises `MutationError`, and `InternalError`
        if the result is not a valid object of the kind.
        """
