"""Costs of CEL: evaluating a rule of a custom resource, and compiling the rules of a large definition.

The ceiling of an evaluation is the same rule written as a Python function; that of compiling is Python's own compiler
on the same rules in its syntax. Neither checks types nor counts costs.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Result
from controller_manager.common.cel.environment import Environment
from controller_manager.common.cel.schema_types import declared_type
from controller_manager.common.cel.sizes import declared_sizes
from controller_manager.common.cel.values import CostBudget

ROUNDS, EVALUATIONS, RULES = 5, 20_000, 1000
EVALUATION_AIM, COMPILE_AIM = 5.0, 1.0  # microseconds; seconds

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "minReplicas": {"type": "integer"},
        "replicas": {"type": "integer"},
        "name": {"type": "string", "maxLength": 63},
        "items": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}},
        "labels": {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "string"}},
    },
}
TEXTS = (
    ("self.minReplicas <= self.replicas", "self['minReplicas'] <= self['replicas']"),
    ("self.items.all(i, i.size() <= 10)", "all(len(i) <= 10 for i in self['items'])"),
    ("!has(self.name) || self.name.startsWith('a')", "'name' not in self or self['name'].startswith('a')"),
    ("self.name == oldSelf.name || self.replicas > 3", "self['name'] == old['name'] or self['replicas'] > 3"),
    ("!has(self.labels) || size(self.labels) < 5", "'labels' not in self or len(self['labels']) < 5"),
)


def run() -> list[Result]:
    """One rule evaluated, and a thousand compiled with their estimates."""
    declared = declared_type(SCHEMA, "selfType", resource=True)
    assert declared is not None
    environment = Environment.base().extend({"self": declared.type, "oldSelf": declared.type})
    return [_evaluation(environment), _compilation(environment, declared.type)]


def _evaluation(environment: Environment) -> Result:
    program = environment.compile(TEXTS[0][0])
    tree = {"minReplicas": 1, "replicas": 3}
    variables = {"self": tree, "oldSelf": tree}
    plain: Callable[[Any], bool] = eval(f"lambda self: {TEXTS[0][1]}")
    ours = _seconds(lambda: program.evaluate(variables, CostBudget()), EVALUATIONS) * 1e6
    ceiling = _seconds(lambda: plain(tree), EVALUATIONS) * 1e6
    return Result(
        "a rule evaluated (1: 5 µs)", f"{ours:.2f} µs", f"{ceiling:.2f} µs", ours / EVALUATION_AIM, 1.0, at_most=True
    )


def _compilation(environment: Environment, root: Any) -> Result:
    sizes = declared_sizes(root)
    rules = [TEXTS[number % len(TEXTS)] for number in range(RULES)]

    def compile_all() -> None:
        for rule, _ in rules:
            environment.compile(rule).estimate(sizes)

    def compile_plain() -> None:
        for _, text in rules:
            compile(text, "<rule>", "eval")

    ours, ceiling = _seconds(compile_all, 1), _seconds(compile_plain, 1)
    return Result(
        "1,000 rules compiled (1: 1 s)", f"{ours:.2f} s", f"{ceiling:.3f} s", ours / COMPILE_AIM, 1.0, at_most=True
    )


def _seconds(action: Callable[[], object], count: int) -> float:
    """CPU seconds of an action, the median of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(count):
            action()
        rounds.append((time.process_time() - began) / count)
    return statistics.median(rounds)
