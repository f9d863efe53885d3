"""Plans of checked trees, which run with variable values and a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller_manager.common.cel.frame import LIMIT, SLOTS, SPENT, UNSET, Evaluate, EvaluationFrame
from controller_manager.common.cel.library import Function
from controller_manager.common.cel.parts import closure
from controller_manager.common.cel.planner import Planner
from controller_manager.common.cel.syntax import Ident, Node, Select, walk
from controller_manager.common.cel.types import Type
from controller_manager.common.cel.values import CostBudget, CostExceeded, EvaluationError


class Plan:
    """A closure with the names of its variables."""

    def __init__(self, evaluate: Evaluate, variables: Mapping[str, Type], loops: int) -> None:
        self._evaluate = evaluate
        self._names = tuple(variables)
        self._readers = [(SLOTS + at, one.reader) for at, one in enumerate(variables.values()) if one.reader]
        self._loops = [UNSET] * loops

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the used variables."""
        return frozenset(self._names)

    def run(self, variables: Mapping[str, Any], budget: CostBudget) -> Any:
        """Return the value; the cost is added to `budget.spent`. Raises EvaluationError and CostExceeded."""
        frame: EvaluationFrame = [budget.spent, budget.limit, {}]
        frame += [variables.get(name, UNSET) for name in self._names]
        frame += self._loops
        error: EvaluationError | None = None
        value = None
        try:
            for slot, reader in self._readers:
                if frame[slot] is not UNSET and frame[slot] is not None:
                    frame[slot] = reader(frame[slot])
            value = self._evaluate(frame)
        except CostExceeded:
            budget.spent = frame[SPENT]
            raise
        except EvaluationError as caught:
            error = caught
        except RecursionError:
            error = EvaluationError("the expression is nested too deeply")
        if frame[SPENT] > frame[LIMIT]:
            budget.spent = frame[LIMIT] + 1
            raise CostExceeded
        budget.spent = frame[SPENT]
        if error is not None:
            raise error
        return value


def plan(tree: Node, functions: Mapping[str, Function], variables: Mapping[str, Type]) -> Plan:
    """Return the plan of a checked tree. Raises EvaluationError if a constant part fails."""
    names = {name: variables[name] for name in _names(tree) if name in variables}
    planner = Planner(functions, tuple(names))
    evaluate = closure(planner.part(tree))
    return Plan(evaluate, names, planner.loops)


def plan_over(tree: Node, functions: Mapping[str, Function], names: tuple[str, ...]) -> Evaluate:
    """Return the closure of a checked tree for frames with the values of `names` in that order, so that many
    evaluations can share a frame. Raises EvaluationError if a constant part fails.
    """
    planner = Planner(functions, names)
    evaluate = closure(planner.part(tree))
    loops, begin = [UNSET] * planner.loops, SLOTS + len(names)
    if not loops:
        return evaluate

    def with_loops(frame: EvaluationFrame) -> Any:
        frame[begin:] = loops
        return evaluate(frame)

    return with_loops


def _names(tree: Node) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, Ident):
            yield node.name
        elif isinstance(node, Select) and node.resolved is not None:
            yield node.resolved.name
