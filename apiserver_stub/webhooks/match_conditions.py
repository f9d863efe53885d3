"""Match conditions: CEL expressions that must all be true for a webhook to be called (KEP-3716).

The caller defines the variables and handles errors.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from apiserver_stub.common.offload import StepRunner, at_once
from controller_manager.common.cel.environment import Environment, Program
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import BOOL
from controller_manager.common.cel.values import CostBudget, CostExceeded, EvaluationError

MOST_OF_ONE = 1_000_000
"""The cost limit of one condition."""
MOST_OF_ALL = 2_500_000
"""The cost limit of all conditions of one webhook for a request."""
_QUICK = 20_000  # the cost of what takes some milliseconds


class ConditionError(ValueError):
    """An expression is not a valid condition; the message is the reason."""


class MatchError(Exception):
    """Some conditions could not be evaluated, and no other is false."""


def compile_condition(expression: str, environment: Environment) -> Program:
    """Return the program of a condition. Raises `ConditionError`."""
    try:
        program = environment.compile(expression)
    except CompileError as error:
        raise ConditionError(f"compilation failed: {error.display()}") from None
    if program.type != BOOL:
        raise ConditionError(f"must evaluate to bool but got {program.type}")
    return program


class MatchConditions:
    """The conditions of one webhook, evaluated with `variables`."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = tuple(programs)

    async def match(self, variables: Mapping[str, Any], run: StepRunner = at_once) -> tuple[bool, str]:
        """Return whether all conditions hold, and the errors of conditions before a false one. Long evaluations use
        `run`. Raises `MatchError` if none is false and some cannot be evaluated.
        """
        try:
            return self._match(variables, _QUICK, give_up=True)
        except CostExceeded:
            return await run(partial(self._match, variables, MOST_OF_ALL, give_up=False))

    def _match(self, variables: Mapping[str, Any], most: int, *, give_up: bool) -> tuple[bool, str]:
        """Like `match`; with `give_up`, raise `CostExceeded` if the cost exceeds `most`."""
        errors: list[str] = []
        spent = 0
        for program in self._programs:
            budget = CostBudget(min(MOST_OF_ONE, most - spent))
            try:
                if not program.evaluate(variables, budget):
                    return False, "; ".join(errors)
            except EvaluationError as error:
                errors.append(_message(program, error.message))
            except CostExceeded as error:
                if give_up:
                    raise
                errors.append(_message(program, str(error)))
            spent += min(budget.spent, budget.limit)
        if errors:
            raise MatchError("; ".join(errors))
        return True, ""


def _message(program: Program, problem: str) -> str:
    return f"failed to evaluate the condition {program.expression!r}: {problem}"
