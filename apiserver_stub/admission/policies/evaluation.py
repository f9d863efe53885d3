"""Evaluates the expressions of policies for requests: in the thread what takes long, and with the authorizer's answers.

Programs of policies import this; it loads CEL, which a server without policies can do without.
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
    """Whether match conditions hold, and why that cannot be said."""

    holds: bool
    error: str = ""


class PolicyScope:
    """What expressions of one policy are given: a request in a version, a parameter, the answers of the authorizer.
    `quick` bounds the cost of each expression where nothing may take long.
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
        """Return what evaluates the expressions of a policy that share a budget; those without the authorizer fail
        where they ask it.
        """
        values = _Values(self._inputs, self._versioned, self._params, self._decide if authorizer else None)
        return Evaluation(values, variables, limit, self._quick)

    def matches(self, conditions: Sequence[Expression]) -> MatchResult:
        """Return whether match conditions hold: one that is false decides, whatever went wrong with others."""
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
    """The values of variables by name, of which those are made when they are first asked for that take something; names
    of the authorizer have none without `decide`.
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
    """Return what match conditions without parameters look at, of a request in its own version."""
    versioned = inputs.known(inputs.attributes.kind)
    assert versioned is not None  # nothing is converted to what it is
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
    """Return what `step` does with a scope. It is called again when the authorizer has answered a question, and by
    `run` if it turns out to take long. Raises `NotFound` if the namespace of the request is gone.
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
    """Make all that expressions may ask for: nothing is read from the store elsewhere than in the event loop. Who asks
    for a namespace that is not there is told when it does.
    """
    _ = versioned.request, versioned.own_request
    with suppress(NotFound):
        _ = inputs.namespace


async def _answer(authorizer: Authorizer, caller: User, check: AuthorizationCheck) -> DecisionValue:
    """Return what the authorizer says; that it cannot be asked is an error of the answer."""
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
