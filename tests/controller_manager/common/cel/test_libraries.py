"""CEL libraries beyond the recorded expressions: the authorizer, bounds, and stable order."""

from collections.abc import Callable
from typing import Any

import pytest

from controller_manager.common.cel.environment import Environment, Program
from controller_manager.common.cel.library.authorizer import (
    AuthorizationCheck,
    AuthorizerValue,
    DecisionValue,
    Undecided,
    evaluate_decided,
)
from controller_manager.common.cel.library.mutations import MUTATIONS
from controller_manager.common.cel.types import DYN, STRING
from controller_manager.common.cel.values import CostBudget, CostExceeded, EvaluationError

VARIABLES = {"authorizer": AuthorizerValue.type, "x": DYN, "s": STRING}


def program(expression: str) -> Program:
    return Environment.base().extend(VARIABLES).compile(expression)


def value(expression: str, **variables: Any) -> Any:
    return program(expression).evaluate(variables, CostBudget())


def asked(expression: str) -> AuthorizationCheck:
    """Return the first authorization check of an expression."""
    questions: list[AuthorizationCheck] = []

    def decide(check: AuthorizationCheck) -> DecisionValue:
        questions.append(check)
        return DecisionValue(allowed=True)

    value(expression, authorizer=AuthorizerValue(decide))
    return questions[0]


@pytest.mark.parametrize(
    ("expression", "check"),
    [
        ("authorizer.path('/healthz').check('GET').allowed()", AuthorizationCheck("GET", path="/healthz")),
        (
            "authorizer.group('apps').resource('deployments').check('list').allowed()",
            AuthorizationCheck("list", group="apps", resource="deployments"),
        ),
        (
            "authorizer.group('').resource('pods').subresource('log').namespace('a').name('b').check('get').allowed()",
            AuthorizationCheck("get", resource="pods", subresource="log", namespace="a", name="b"),
        ),
        (
            "authorizer.serviceAccount('a', 'b').group('').resource('pods').check('get').allowed()",
            AuthorizationCheck("get", ("a", "b"), resource="pods"),
        ),
        (
            "authorizer.group('').resource('pods').fieldSelector('a=b').labelSelector('c').check('list').allowed()",
            AuthorizationCheck("list", resource="pods", field_selector="a=b", label_selector="c"),
        ),
    ],
)
def test_authorizer_receives_the_check(expression: str, check: AuthorizationCheck) -> None:
    assert asked(expression) == check


@pytest.mark.parametrize(
    ("question", "expected"),
    [("allowed()", False), ("reason()", "why"), ("errored()", True), ("error()", "broken")],
)
def test_expression_reads_the_decision(question: str, expected: object) -> None:
    authorizer = AuthorizerValue(lambda check: DecisionValue(allowed=False, reason="why", error="broken"))
    assert value(f"authorizer.path('/x').check('get').{question}", authorizer=authorizer) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("authorizer.path(' ')", "path must not be empty"),
        ("authorizer.group('').resource('')", "resource must not be empty"),
        ("authorizer.serviceAccount('a', '-b')", "Invalid service account name"),
        ("authorizer.serviceAccount('A', 'b')", "Invalid service account namespace"),
        ("authorizer == authorizer", "no such overload"),
    ],
)
def test_malformed_check_is_an_evaluation_error(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as error:
        value(expression, authorizer=AuthorizerValue(lambda check: DecisionValue(allowed=True)))
    assert error.value.message == message


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("authorizer.path('/x').check('get').allowed()", 350_003),
        ("authorizer.group('').resource('pods').labelSelector('a=b').check('get').allowed()", 350_115),
    ],
)
def test_cost_of_authorizer_checks(expression: str, cost: int) -> None:
    budget = CostBudget()
    compiled = program(expression)
    compiled.evaluate({"authorizer": AuthorizerValue(lambda check: DecisionValue(allowed=True))}, budget)
    assert budget.spent == cost
    assert (compiled.estimate().min, compiled.estimate().max) == (cost, cost)


async def test_evaluation_is_repeated_until_checks_are_decided() -> None:
    compiled = program("authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed()")
    questions = []

    async def ask(check: AuthorizationCheck) -> DecisionValue:
        questions.append(check.path)
        return DecisionValue(allowed=check.path == "/a")

    def evaluate(decide: Callable[[AuthorizationCheck], DecisionValue]) -> Any:
        return compiled.evaluate({"authorizer": AuthorizerValue(decide)}, CostBudget())

    assert await evaluate_decided(evaluate, ask) is False
    assert questions == ["/a", "/b"]


def test_undecided_check_is_raised_through_operators() -> None:
    def decide(check: AuthorizationCheck) -> DecisionValue:
        raise Undecided(check)

    with pytest.raises(Undecided):
        value("authorizer.path('/a').check('get').allowed() || true", authorizer=AuthorizerValue(decide))


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(int(s)).size()",
        "x.map(i, i).distinct()",
        "x.map(i, i).sort()",
        "sets.contains(x.map(i, i), x.map(i, i))",
        "s.replace('', x.map(i, s).join(s)).replace('', s).size()",
        "x.map(i, s).join(x.map(i, s).join(s)).size()",
        "'%.999999999e'.format([double(x.size())])",
        "x.map(i, s).join(s).replace('0', '00').findAll('')",
    ],
)
def test_excessive_results_are_refused_before_allocation(expression: str) -> None:
    with pytest.raises((CostExceeded, EvaluationError)):
        value(expression, s="1000000000000000", x=list(range(3000)))


def test_sort_by_is_stable() -> None:
    items = [{"n": n % 3, "at": n} for n in range(40)]
    assert value("x.sortBy(i, i.n)", x=items) == sorted(items, key=lambda item: item["n"])


def test_json_pointer_keys_are_escaped() -> None:
    environment = Environment.base().with_libraries(MUTATIONS)
    escaped = environment.compile("jsonpatch.escapeKey('a/b~c')").evaluate({}, CostBudget())
    assert escaped == "a~1b~0c"
