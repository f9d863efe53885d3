"""What a validating policy says of a request: decisions and annotations, as plain values."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from apiserver_stub.admission.policies.index import Exclusion
from apiserver_stub.admission.policies.inputs import RequestInputs, Versioned
from apiserver_stub.common.offload import StepRunner
from controller_manager.common.api.tree import Tree


class ValidationDecision(NamedTuple):
    """The decision of a validation: whether it admits the request, and why not, or what went wrong (`failed`).
    `seconds` is how long it took.
    """

    admits: bool
    message: str = ""
    reason: str = "Invalid"
    failed: bool = False
    seconds: float = 0.0


class Annotation(NamedTuple):
    """An annotation for the audit. One that `failed` has, in place of a value, why the request is refused."""

    key: str
    value: str
    failed: bool = False
    seconds: float = 0.0


class Judgement(NamedTuple):
    """What a policy says of a request with one parameter: nothing, if its match conditions do not hold."""

    decisions: Sequence[ValidationDecision] = ()
    annotations: Sequence[Annotation] = ()


class Judge(Protocol):
    """The compiled expressions of a policy."""

    exclusion: Exclusion | None
    """The match conditions, if there are any."""

    async def judge(
        self, inputs: RequestInputs, versioned: Versioned, params: Tree | None, run: StepRunner
    ) -> Judgement:
        """Return what the policy says. What takes long is done by `run`. Raises `NotFound` if the namespace of the
        request is gone.
        """
