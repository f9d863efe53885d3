"""What admission is shown of a write, and the list of its steps."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from apiserver_stub.call import Tree, User
from apiserver_stub.kinds.resource_info import ResourceInfo

Operation = Literal["create", "update", "delete"]


class AdmissionRequest(Struct, frozen=True):
    """A write about to happen: `tree` is the object as it would be (a step may change it in place; of a delete the
    object as it is), `old` what it replaces. `name` is empty while a name has yet to be generated.
    """

    operation: Operation
    kind: ResourceInfo
    namespace: str
    name: str
    subresource: str
    tree: Tree
    old: Tree | None
    user: User
    dry_run: bool


Step = Callable[[AdmissionRequest], None]


class Only(NamedTuple):
    """A step that is shown writes of these resources only, named as in the store (`ResourceInfo.storage`)."""

    step: Step
    resources: tuple[str, ...]


Steps = Sequence[Step | Only]


class Admission:
    """The steps in their order; each raises the refusal of what it does not admit. The first may change the object;
    the `last` see it as it will be stored, once all its rules hold, and give it what only the cluster can: addresses,
    shares of a budget.
    """

    def __init__(self, steps: Steps = (), last: Steps = ()) -> None:
        self._steps = tuple(steps)
        self._last = tuple(last)
        self._chosen: dict[str, tuple[tuple[Step, ...], tuple[Step, ...]]] = {}

    def admit(self, request: AdmissionRequest) -> None:
        """Show the write to the steps, before it is prepared and validated."""
        for step in self._of(request.kind)[0]:
            step(request)

    def allocate(self, request: AdmissionRequest) -> None:
        """Show the write to the last steps, directly before it is committed."""
        for step in self._of(request.kind)[1]:
            step(request)

    def _of(self, kind: ResourceInfo) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The first and the last steps for writes of a kind."""
        found = self._chosen.get(kind.storage)
        if found is None:
            found = self._chosen[kind.storage] = _of(self._steps, kind.storage), _of(self._last, kind.storage)
        return found


def _of(steps: Steps, resource: str) -> tuple[Step, ...]:
    rows = (step if isinstance(step, Only) else Only(step, (resource,)) for step in steps)
    return tuple(row.step for row in rows if resource in row.resources)
