"""The compiled expressions of a validating policy, and their decisions."""

from collections.abc import Sequence
from typing import NamedTuple

from apiserver_stub.admission.policies.evaluation import PolicyScope, condition_frame, evaluated
from apiserver_stub.admission.policies.index import Exclusion
from apiserver_stub.admission.policies.inputs import RequestInputs, Versioned
from apiserver_stub.admission.policies.judgement import Annotation, Judgement, ValidationDecision
from apiserver_stub.common.offload import StepRunner
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic
from controller_manager.common.cel.admission import (
    MOST_OF_ONE,
    Composition,
    Expression,
    ExpressionResult,
    OutOfBudget,
    exclusion,
)
from controller_manager.common.cel.types import BOOL, NULL, STRING

_LONGEST_MESSAGE = 5 * 1024  # bytes of a message computed by an expression
_OVERSHOOT = 2  # factor by which an expression may exceed its cost limit before it is stopped


_NO_CONCERN = Judgement()


class _Validation(NamedTuple):
    """A validation: its expression, its message expression, and the static message."""

    expression: Expression
    message_expression: Expression | None
    message: str
    reason: str


class ValidatingProgram:
    """The compiled expressions of the `spec` of a policy."""

    def __init__(self, spec: Tree) -> None:
        has_params = "paramKind" in spec
        composition = Composition(params=has_params)
        for variable in spec.get("variables") or ():
            composition.add(variable["name"], variable["expression"])
        self._variables = composition.variables
        self._fails = spec.get("failurePolicy") != "Ignore"
        self._conditions = [
            composition.compile(condition["expression"], BOOL) for condition in spec.get("matchConditions") or ()
        ]
        quick = self._conditions and not has_params
        self.exclusion = Exclusion(condition_frame, exclusion(self._conditions)) if quick else None
        self._validations = [_validation(composition, each) for each in spec.get("validations") or ()]
        self._annotations = [
            (each["key"], composition.compile(each["valueExpression"], STRING, NULL))
            for each in spec.get("auditAnnotations") or ()
        ]
        spoken = sum(each.message_expression is not None for each in self._validations) + len(self._variables)
        self._most_of_messages = spoken * _OVERSHOOT * MOST_OF_ONE

    async def judge(
        self, inputs: RequestInputs, versioned: Versioned, params: Tree | None, run: StepRunner
    ) -> Judgement:
        """Return the result of the policy. Long evaluations use `run`. Raises `NotFound` if the namespace of the
        request does not exist.
        """
        return await evaluated(inputs, versioned, params, self._judge, run)

    def _judge(self, scope: PolicyScope) -> Judgement:
        if self._conditions:
            verdict = scope.matches(self._conditions)
            if verdict.error and self._fails:
                return Judgement((self._failed(verdict.error),))
            if not verdict.holds:
                return _NO_CONCERN
        evaluation = scope.evaluation(self._variables)
        timed: list[tuple[ExpressionResult, float]] = []
        try:
            began = monotonic()
            for validation in self._validations:
                outcome = evaluation.evaluate(validation.expression)
                ended = monotonic()
                timed.append((outcome, ended - began))
                began = ended
        except OutOfBudget as error:
            return Judgement((self._failed(str(error)),))
        decisions = self._decisions(scope, timed, evaluation.remaining)
        try:
            return Judgement(decisions, self._annotated(scope))
        except OutOfBudget as error:
            return Judgement((self._failed(str(error)),))

    def _decisions(
        self, scope: PolicyScope, timed: Sequence[tuple[ExpressionResult, float]], remaining: int
    ) -> Sequence[ValidationDecision]:
        """Return the decisions of all validations; empty if all admit the request. Then the messages are not evaluated,
        and need no budget.
        """
        if self._most_of_messages <= remaining and all(outcome.value is True for outcome, _ in timed):
            return ()
        spoken, problem = self._messages(scope, remaining)
        decisions = []
        for validation, message, (outcome, seconds) in zip(self._validations, spoken, timed, strict=True):
            if outcome.error or problem:
                decision = self._failed(outcome.error or problem)
            elif outcome.value is True:
                decision = ValidationDecision(True)
            else:
                decision = ValidationDecision(False, _message(validation, message), validation.reason)
            decisions.append(decision._replace(seconds=seconds))
        return decisions

    def _messages(self, scope: PolicyScope, remaining: int) -> tuple[Sequence[ExpressionResult | None], str]:
        """Return the messages that expressions make, and the error that fails all validations: an exhausted cost
        budget.
        """
        evaluation = scope.evaluation(self._variables, remaining, authorizer=False)
        try:
            return [
                None if each.message_expression is None else evaluation.evaluate(each.message_expression)
                for each in self._validations
            ], ""
        except OutOfBudget as error:
            return [None] * len(self._validations), f"failed messageExpression: {error}"

    def _annotated(self, scope: PolicyScope) -> Sequence[Annotation]:
        """Return annotations with values, and those that failed. Raises `OutOfBudget`."""
        if not self._annotations:
            return ()
        evaluation = scope.evaluation(self._variables, authorizer=False)
        found = []
        for key, expression in self._annotations:
            began = monotonic()
            value, error = evaluation.evaluate(expression)
            text = value.strip() if isinstance(value, str) else ""
            if text or (error and self._fails):
                found.append(Annotation(key, text or error, bool(error), monotonic() - began))
        return found

    def _failed(self, problem: str) -> ValidationDecision:
        return ValidationDecision(not self._fails, problem, failed=True)


def _validation(composition: Composition, tree: Tree) -> _Validation:
    spoken = tree.get("messageExpression")
    return _Validation(
        composition.compile(tree["expression"], BOOL),
        composition.compile(spoken, STRING, authorizer=False) if spoken else None,
        (tree.get("message") or "").strip() or f"failed expression: {tree['expression'].strip()}",
        tree.get("reason") or "Invalid",
    )


def _message(validation: _Validation, spoken: ExpressionResult | None) -> str:
    """Return the message of a failed validation: the result of its message expression, if valid."""
    if spoken is not None and isinstance(spoken.value, str):
        text = spoken.value.strip()
        if text and "\n" not in text and len(text.encode()) <= _LONGEST_MESSAGE:
            return text
    return validation.message
