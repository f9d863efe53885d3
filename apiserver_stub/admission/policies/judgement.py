"""The result of a validating policy for a request: decisions and annotations, as plain values."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from apiserver_stub.admission.policies.index import Exclusion
from apiserver_stub.admission.policies.inputs import RequestInputs, Versioned
from apiserver_stub.common.offload import StepRunner
from controller_manager.common.api.tree import Tree


class ValidationDecision(NamedTuple):
    """The result of a validation: whether it admits the request, and the message or the error (`failed`). `seconds` is
    its duration.
    """

    admits: bool
    message: str = ""
    reason: str = "Invalid"
    failed: bool = False
    seconds: float = 0.0


class Annotation(NamedTuple):
    """An audit annotation. If it `failed`, the value is the reason of the rejection."""

    key: str
    value: str
    failed: bool = False
    seconds: float = 0.0


class Judgement(NamedTuple):
    """The result of a policy for a request with one parameter; empty if its match conditions do not hold."""

    decisions: Sequence[ValidationDecision] = ()
    annotations: Sequence[Annotation] = ()


class Judge(Protocol):
    """The compiled expressions of a policy."""

    exclusion: Exclusion | None
    """The match conditions, if there are any."""

    async def judge(
        self, inputs: RequestInputs, versioned: Versioned, params: Tree | None, run: StepRunner
    ) -> Judgement:
        """Return the result of the policy. Long evaluations use `run`. Raises `NotFound` if the namespace of the
        request does not exist.
        """
