"""Evaluates the expressions of policies for requests: long evaluations in the thread, with the authorizer's answers.

Programs of policies import this module; it loads CEL, which a server without policies does not need.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from apiserver_stub.admission.policies.inputs import RequestInputs, Versioned
from apiserver_stub.common.offload import StepRunner
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.tree import Tree
from controller_manager.common.cel.admission import (
    MOST_OF_CONDITIONS,
    MOST_OF_POLICY,
    Evaluation,
    Expression,
    OutOfBudget,
    exclusion_frame,
)
from controller_manager.common.cel.frame import EvaluationFrame
from controller_manager.common.cel.library.authorizer import (
    AuthorizationCheck,
    AuthorizerValue,
    Decide,
    DecisionValue,
    ResourceCheck,
    Undecided,
)
from controller_manager.common.cel.values import CostExceeded
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorizer, AuthorizerAttributes, Decision, Selectors

T = TypeVar("T")

_QUICK = 20_000  # the cost of what takes some milliseconds
_ACCOUNTS = "system:serviceaccounts"


class MatchResult(NamedTuple):
    """Whether match conditions hold, or why they could not be evaluated."""

    holds: bool
    error: str = ""


class PolicyScope:
    """The variables of one policy's expressions: a request in a version, a parameter, answers of the authorizer.
    `quick` limits the cost of each expression in the event loop.
    """

    def __init__(
        self,
        inputs: RequestInputs,
        versioned: Versioned,
        params: Tree | None,
        decide: Decide,
        quick: int | None,
    ) -> None:
        self._inputs = inputs
        self._versioned = versioned
        self._params = params
        self._decide = decide
        self._quick = quick

    def evaluation(
        self, variables: Mapping[str, Expression], limit: int = MOST_OF_POLICY, *, authorizer: bool = True
    ) -> Evaluation:
        """Return an evaluation of the expressions of a policy with a shared budget. Without `authorizer`, expressions
        that use it fail.
        """
        values = _Values(self._inputs, self._versioned, self._params, self._decide if authorizer else None)
        return Evaluation(values, variables, limit, self._quick)

    def matches(self, conditions: Sequence[Expression]) -> MatchResult:
        """Return whether match conditions hold. One that is false decides, even if others fail."""
        values = _Values(self._inputs, self._versioned, self._params, self._decide)
        values |= {"request": self._versioned.own_request, "namespaceObject": None}
        evaluation = Evaluation(values, {}, MOST_OF_CONDITIONS, self._quick)
        try:
            outcomes = [evaluation.evaluate(condition) for condition in conditions]
        except OutOfBudget as error:
            return MatchResult(False, str(error))
        if any(outcome.value is False for outcome in outcomes):
            return MatchResult(False)
        errors = list(dict.fromkeys(outcome.error for outcome in outcomes if outcome.error))
        if not errors:
            return MatchResult(True)
        return MatchResult(False, errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


class _Values(dict[str, Any]):
    """The variables by name. Expensive ones are computed on first use; without `decide`, the authorizer variables are
    undefined.
    """

    def __init__(
        self, inputs: RequestInputs, versioned: Versioned, params: Tree | None, decide: Decide | None = None
    ) -> None:
        super().__init__(object=versioned.object, oldObject=versioned.old_object, params=params)
        self._inputs = inputs
        self._versioned = versioned
        self._decide = decide

    def __missing__(self, name: str) -> Any:
        if name == "request":
            value: Any = self._versioned.request
        elif name == "namespaceObject":
            value = self._inputs.namespace
        elif name.startswith("authorizer") and self._decide is not None:
            value = _authorizer_value(name, self._versioned.own_request, self._decide)
        else:
            raise KeyError(name)
        self[name] = value
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a name."""
        try:
            return self[name]
        except KeyError:
            return default


def _authorizer_value(name: str, request: Tree, decide: Decide) -> AuthorizerValue | ResourceCheck:
    if name == "authorizer":
        return AuthorizerValue(decide)
    resource = request["resource"]
    check = AuthorizationCheck(
        group=resource["group"],
        resource=resource["resource"],
        subresource=request.get("subResource", ""),
        namespace=request.get("namespace", ""),
        name=request.get("name", ""),
    )
    return ResourceCheck(decide, check)


def condition_frame(inputs: RequestInputs) -> EvaluationFrame:
    """Return the variables of match conditions without parameters, for a request in its own version."""
    versioned = inputs.known(inputs.attributes.kind)
    assert versioned is not None  # the own version needs no conversion
    values = {
        "object": versioned.object,
        "oldObject": versioned.old_object,
        "request": versioned.own_request,
        "namespaceObject": None,
    }
    return exclusion_frame(values, _QUICK)


async def evaluated(
    inputs: RequestInputs, versioned: Versioned, params: Tree | None, step: Callable[[PolicyScope], T], run: StepRunner
) -> T:
    """Run `step` with a scope and return its result. It is repeated after the authorizer has answered a question, and
    by `run` if it takes long. Raises `NotFound` if the namespace of the request does not exist.
    """
    decisions = inputs.decisions

    def decide(check: AuthorizationCheck) -> DecisionValue:
        if check not in decisions:
            raise Undecided(check)
        found: DecisionValue = decisions[check]
        return found

    quick: int | None = _QUICK
    while True:
        scope = PolicyScope(inputs, versioned, params, decide, quick)
        if quick is None:
            _prepare(inputs, versioned)
        try:
            return step(scope) if quick is not None else await run(partial(step, scope))
        except CostExceeded:
            quick = None
        except Undecided as undecided:
            question = undecided.check
            decisions[question] = await _answer(inputs.authorizer, inputs.attributes.user, question)


def _prepare(inputs: RequestInputs, versioned: Versioned) -> None:
    """Compute all variables in advance, because the store is read only in the event loop. If the namespace does not
    exist, the expression that uses it fails.
    """
    _ = versioned.request, versioned.own_request
    with suppress(NotFound):
        _ = inputs.namespace


async def _answer(authorizer: Authorizer, caller: User, check: AuthorizationCheck) -> DecisionValue:
    """Return the decision of the authorizer; a failure becomes an error in the answer."""
    user = caller
    if check.service_account is not None:
        namespace, name = check.service_account
        user = User(f"system:serviceaccount:{namespace}:{name}", groups=(_ACCOUNTS, f"{_ACCOUNTS}:{namespace}"))
    asked = AuthorizerAttributes(user, check.verb, check.path)
    if check.resource:
        where = (check.group, "*", check.resource, check.subresource, check.namespace, check.name)
        asked = AuthorizerAttributes(
            user, check.verb, "", *where, Selectors(check.field_selector, check.label_selector)
        )
    try:
        decision, reason, error = await authorizer.authorize(asked)
    except ApiError as failure:
        return DecisionValue(False, "", failure.message)
    return DecisionValue(decision is Decision.ALLOW, reason, error or None)
