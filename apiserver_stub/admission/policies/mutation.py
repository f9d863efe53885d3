"""What a mutation of a policy is about, and how it fails, as plain values."""

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
    """A policy cannot be applied to an object; the message is told to users."""


class MutationTarget(NamedTuple):
    """What is mutated: an object of a resource in the version that was matched, or of its subresource."""

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
        """Return whether the description of the group and version has the type, without which nothing is applied."""
        mine = (self.kind.group, self.kind.version) == (self.info.group, self.info.version)
        return mine and self.attributes.operation != "connect"


class Mutator(Protocol):
    """The compiled expressions of a mutating policy: `mutations` of them change the object, one after the other.
    `again` says that the policy is asked a second time when others have changed the object behind it; `exclusion` is
    what may be said of its match conditions quickly.
    """

    mutations: int
    again: bool
    exclusion: Exclusion | None

    async def matches(self, inputs: RequestInputs, versioned: Versioned, params: Tree | None, run: StepRunner) -> bool:
        """Return whether the match conditions hold. Raises `MutationError` if that cannot be said."""

    async def mutate(
        self,
        number: int,
        target: MutationTarget,
        inputs: RequestInputs,
        versioned: Versioned,
        params: Tree | None,
        run: StepRunner,
    ) -> Tree:
        """Return the object of `versioned` as a mutation leaves it, with its defaults, as a tree of its own. Raises
        `MutationError`, and `InternalError` for what is no object of the kind any more.
        """
