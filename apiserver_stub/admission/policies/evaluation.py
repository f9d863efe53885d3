"""Evaluates the expressions of policies for requests: in the thread what takes long, and with the authorizer's answers.

Programs of policies import this; it loads CEL, which a server without policies can do without.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from apiserver_stub.admission.policies.inputs import RequestInputs, Versioned
from apiserver_stub.api_request import Tree
from apiserver_stub.offload import Run
from controller_manager.api.errors import ApiError, BadRequest
from controller_manager.api.selectors import FieldSelector, LabelSelector
from controller_manager.cel.admission import MOST_OF_CONDITIONS, MOST_OF_POLICY, Evaluation, Expression, OutOfBudget
from controller_manager.cel.library.authorizer import (
    AuthorizationCheck,
    AuthorizerValue,
    Decide,
    DecisionValue,
    ResourceCheck,
    Undecided,
)
from controller_manager.cel.values import CostBudget, CostExceeded, EvaluationError
from controller_manager.serving.authentication import User
from controller_manager.serving.authorization import Attributes, Authorizer, Decision

T = TypeVar("T")
S = TypeVar("S", FieldSelector, LabelSelector)

_QUICK = 20_000  # the cost of what takes some milliseconds
_ACCOUNTS = "system:serviceaccounts"


class Verdict(NamedTuple):
    """Whether match conditions hold, and why that cannot be said."""

    holds: bool
    error: str = ""


class Scope:
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
        versioned = self._versioned
        values = self._values(versioned.request, self._inputs.namespace)
        if authorizer:
            values |= self._authorizer_values()
        return Evaluation(values, variables, limit, self._quick)

    def matches(self, conditions: Sequence[Expression]) -> Verdict:
        """Return whether match conditions hold: one that is false decides, whatever went wrong with others."""
        values = self._values(self._versioned.own_request, None) | self._authorizer_values()
        evaluation = Evaluation(values, {}, MOST_OF_CONDITIONS, self._quick)
        try:
            outcomes = [evaluation.evaluate(condition) for condition in conditions]
        except OutOfBudget as error:
            return Verdict(False, str(error))
        if any(outcome.value is False for outcome in outcomes):
            return Verdict(False)
        errors = list(dict.fromkeys(outcome.error for outcome in outcomes if outcome.error))
        if not errors:
            return Verdict(True)
        return Verdict(False, errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")

    def _values(self, request: Tree, namespace: Tree | None) -> dict[str, Any]:
        return _values(self._versioned, request, namespace, self._params)

    def _authorizer_values(self) -> dict[str, Any]:
        return _authorizer_values(self._versioned, self._decide)


def _values(versioned: Versioned, request: Tree, namespace: Tree | None, params: Tree | None) -> dict[str, Any]:
    return {
        "object": versioned.object,
        "oldObject": versioned.old_object,
        "request": request,
        "namespaceObject": namespace,
        "params": params,
    }


def _authorizer_values(versioned: Versioned, decide: Decide) -> dict[str, Any]:
    request = versioned.own_request
    check = AuthorizationCheck(
        group=request["resource"]["group"],
        resource=request["resource"]["resource"],
        subresource=request.get("subResource", ""),
        namespace=request.get("namespace", ""),
        name=request.get("name", ""),
    )
    return {"authorizer": AuthorizerValue(decide), "authorizer.requestResource": ResourceCheck(decide, check)}


def excluded(inputs: RequestInputs, versioned: Versioned, conditions: Sequence[Expression]) -> bool:
    """Return whether one of the match conditions of a policy without parameters is false, found out quickly; what
    cannot be is left to `Scope.matches`.
    """
    values = inputs.prepared.get(id(versioned))
    if values is None:
        values = _values(versioned, versioned.own_request, None, None)
        inputs.prepared[id(versioned)] = values
    for condition in conditions:
        if condition.program is None:
            return False
        try:
            if condition.program.evaluate(values, CostBudget(_QUICK)) is False:
                return True
        except (EvaluationError, CostExceeded):
            return False
    return False


async def evaluated(
    inputs: RequestInputs, versioned: Versioned, params: Tree | None, step: Callable[[Scope], T], run: Run
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
        scope = Scope(inputs, versioned, params, decide, quick)
        try:
            return step(scope) if quick is not None else await run(partial(step, scope))
        except CostExceeded:
            quick = None
        except Undecided as undecided:
            question = undecided.check
            decisions[question] = await _answer(inputs.authorizer, inputs.attributes.user, question)


async def _answer(authorizer: Authorizer, caller: User, check: AuthorizationCheck) -> DecisionValue:
    """Return what the authorizer says; that it cannot be asked is an error of the answer."""
    user = caller
    if check.service_account is not None:
        namespace, name = check.service_account
        user = User(f"system:serviceaccount:{namespace}:{name}", groups=(_ACCOUNTS, f"{_ACCOUNTS}:{namespace}"))
    asked = Attributes(user, check.verb, check.path)
    if check.resource:
        fields, labels = _selector(FieldSelector, check.field_selector), _selector(LabelSelector, check.label_selector)
        where = (check.group, "*", check.resource, check.subresource, check.namespace, check.name)
        asked = Attributes(user, check.verb, "", *where, fields, labels)
    try:
        decision, reason, error = await authorizer.authorize(asked)
    except ApiError as failure:
        return DecisionValue(False, "", failure.message)
    return DecisionValue(decision is Decision.ALLOW, reason, error or None)


def _selector(of: type[S], text: str) -> S | None:
    """Return a selector; what is none narrows nothing."""
    try:
        return of.parse(text) if text else None
    except BadRequest:
        return None
