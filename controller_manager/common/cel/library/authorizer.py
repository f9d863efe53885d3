"""Authorization checks in expressions: `authorizer.group('').resource('pods').check('list').allowed()`.

An evaluation cannot await, but an authorizer may have to. An `AuthorizerValue` therefore has a function that returns a
decision at once or raises `Undecided`. `evaluate_decided` then asks the authorizer and evaluates again. The cost of a
check limits this: an evaluation has room for two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, TypeVar

from controller_manager.common.cel.library import (
    LIST_BASE,
    STRING_TRAVERSAL,
    STRUCT_BASE,
    CallEstimate,
    Estimate,
    Function,
    Library,
    Overload,
    fixed,
    no_such_overload,
)
from controller_manager.common.cel.library.costs import (
    Arguments,
    Operands,
    constant,
    constant_estimate,
    nominal,
    nominal_estimate,
)
from controller_manager.common.cel.library.formats import label_problems, subdomain_problems
from controller_manager.common.cel.types import BOOL, STRING, Kind, Type
from controller_manager.common.cel.values import EvaluationError, Opaque, size_of

T = TypeVar("T")
_CHECK_COST = 350_000
_REQUIREMENTS = 0.5  # requirements per character of a selector


@dataclass(frozen=True, slots=True)
class AuthorizationCheck:
    """A check of a path, or of a resource of a group in any version.

    Selectors are the texts of the expression; invalid ones are ignored (`AuthorizeWithSelectors`).
    """

    verb: str = ""
    service_account: tuple[str, str] | None = None  # namespace and name, to check instead of the user
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


class _Incomparable(Opaque):
    """A value that cannot be compared."""

    __slots__ = ()

    def equals(self, other: Any) -> NoReturn:
        """Raises EvaluationError."""
        raise no_such_overload()


@dataclass(frozen=True, slots=True, eq=False)
class DecisionValue(_Incomparable):
    """A decision: whether the check is allowed, the reason, and an error."""

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.authorization.Decision")

    allowed: bool
    reason: str = ""
    error: str | None = None


Decide = Callable[[AuthorizationCheck], DecisionValue]


@dataclass(frozen=True, slots=True, eq=False)
class AuthorizerValue(_Incomparable):
    """The value of the variable `authorizer`, for the user or a service account."""

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.authorization.Authorizer")

    decide: Decide
    check: AuthorizationCheck = AuthorizationCheck()


@dataclass(frozen=True, slots=True, eq=False)
class PathCheck(_Incomparable):
    """A check of a path without its verb."""

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.authorization.PathCheck")

    decide: Decide
    check: AuthorizationCheck


@dataclass(frozen=True, slots=True, eq=False)
class GroupCheck(_Incomparable):
    """A check of a group without its resource."""

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.authorization.GroupCheck")

    decide: Decide
    check: AuthorizationCheck


@dataclass(frozen=True, slots=True, eq=False)
class ResourceCheck(_Incomparable):
    """A check of a resource without its verb, such as `authorizer.requestResource`."""

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.authorization.ResourceCheck")

    decide: Decide
    check: AuthorizationCheck


class Undecided(Exception):
    """An evaluation needs a decision that is not known yet."""

    def __init__(self, check: AuthorizationCheck) -> None:
        super().__init__(f"the authorizer was not asked about {check}")
        self.check = check


async def evaluate_decided(
    evaluate: Callable[[Decide], T], ask: Callable[[AuthorizationCheck], Awaitable[DecisionValue]]
) -> T:
    """Return the result of `evaluate`, which gets a function that decides or raises `Undecided` with the check.

    `evaluate` is called again after each decision, with a new budget each time.
    """
    known: dict[AuthorizationCheck, DecisionValue] = {}

    def decide(check: AuthorizationCheck) -> DecisionValue:
        if check not in known:
            raise Undecided(check)
        return known[check]

    while True:
        try:
            return evaluate(decide)
        except Undecided as undecided:
            check = undecided.check
        known[check] = await ask(check)


def _path(authorizer: AuthorizerValue, path: str) -> PathCheck:
    _require(path, "path")
    return PathCheck(authorizer.decide, replace(authorizer.check, path=path))


def _group(authorizer: AuthorizerValue, group: str) -> GroupCheck:
    return GroupCheck(authorizer.decide, replace(authorizer.check, group=group))


def _service_account(authorizer: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if subdomain_problems(name):
        raise EvaluationError("Invalid service account name")
    if label_problems(namespace):
        raise EvaluationError("Invalid service account namespace")
    return AuthorizerValue(authorizer.decide, AuthorizationCheck(service_account=(namespace, name)))


def _resource(group: GroupCheck, resource: str) -> ResourceCheck:
    _require(resource, "resource")
    return ResourceCheck(group.decide, replace(group.check, resource=resource))


def _require(text: str, what: str) -> None:
    if not text.strip():
        raise EvaluationError(f"{what} must not be empty")


def _with(field: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def narrowed(check: ResourceCheck, value: str) -> ResourceCheck:
        changed: dict[str, Any] = {field: value}
        return ResourceCheck(check.decide, replace(check.check, **changed))

    return narrowed


def _check(check: PathCheck | ResourceCheck, verb: str) -> DecisionValue:
    return check.decide(replace(check.check, verb=verb))


def _selector_cost(arguments: Arguments, result: Any) -> int:
    return _selector(fixed(size_of(arguments[1]))).max


def _selector_estimate(operands: Operands) -> CallEstimate:
    return CallEstimate(_selector(operands[1].size))


def _selector(size: Estimate) -> Estimate:
    requirements = size.scaled(_REQUIREMENTS).scaled(LIST_BASE + STRUCT_BASE)
    return fixed(LIST_BASE).plus(size.scaled(STRING_TRAVERSAL)).plus(requirements)


def _method(name: str, id_: str, of: Type, result: Type, implementation: Any, *others: Type) -> Function:
    overload = Overload(id_, (of, *others), result, implementation, receiver=True, estimate=nominal_estimate)
    return Function(name, (overload,), nominal)


def _check_of(id_: str, of: Type) -> Overload:
    return Overload(
        id_, (of, STRING), DecisionValue.type, _check, receiver=True, estimate=constant_estimate(_CHECK_COST)
    )


def _selector_method(name: str, id_: str, field: str) -> Function:
    overload = Overload(
        id_, (ResourceCheck.type, STRING), ResourceCheck.type, _with(field), receiver=True, estimate=_selector_estimate
    )
    return Function(name, (overload,), _selector_cost)


_AUTHORIZER, _RESOURCE = AuthorizerValue.type, ResourceCheck.type

AUTHORIZERS = Library(
    "kubernetes.authz",
    (
        _method("path", "authorizer_path", _AUTHORIZER, PathCheck.type, _path, STRING),
        _method("group", "authorizer_group", _AUTHORIZER, GroupCheck.type, _group, STRING),
        _method(
            "serviceAccount", "authorizer_serviceaccount", _AUTHORIZER, _AUTHORIZER, _service_account, STRING, STRING
        ),
        _method("resource", "groupcheck_resource", GroupCheck.type, _RESOURCE, _resource, STRING),
        _method("subresource", "resourcecheck_subresource", _RESOURCE, _RESOURCE, _with("subresource"), STRING),
        _method("namespace", "resourcecheck_namespace", _RESOURCE, _RESOURCE, _with("namespace"), STRING),
        _method("name", "resourcecheck_name", _RESOURCE, _RESOURCE, _with("name"), STRING),
        Function(
            "check",
            (_check_of("pathcheck_check", PathCheck.type), _check_of("resourcecheck_check", _RESOURCE)),
            constant(_CHECK_COST),
        ),
        _method("errored", "decision_errored", DecisionValue.type, BOOL, lambda decision: decision.error is not None),
        _method("error", "decision_error", DecisionValue.type, STRING, lambda decision: decision.error or ""),
        _method("allowed", "decision_allowed", DecisionValue.type, BOOL, lambda decision: decision.allowed),
        _method("reason", "decision_reason", DecisionValue.type, STRING, lambda decision: decision.reason),
    ),
)

SELECTORS = Library(
    "kubernetes.authzSelectors",
    (
        _selector_method("fieldSelector", "authorizer_fieldselector", "field_selector"),
        _selector_method("labelSelector", "authorizer_labelselector", "label_selector"),
    ),
)
