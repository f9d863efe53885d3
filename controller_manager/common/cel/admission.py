"""CEL expressions of admission policies and match conditions: variables, compilation and evaluation.

| variable                    | value                                                                            |
|-----------------------------|----------------------------------------------------------------------------------|
| `object`, `oldObject`       | the new and the old object, in the matched version; null if there is none        |
| `request`                   | the request, as in an AdmissionReview, without the objects                       |
| `namespaceObject`           | the namespace of the object; null for cluster-scoped objects                     |
| `params`                    | the parameter of a policy with a paramKind; null if it has none                  |
| `authorizer`                | checks permissions of the user (`library/authorizer.py`)                         |
| `authorizer.requestResource`| the same for the resource of the request                                         |
| `variables`                 | the variables of a policy by name, evaluated on first use                        |

An `Expression` is compiled once; one that does not compile keeps the error. A `Composition` compiles the expressions
of one policy, in which each variable may use the previous ones. An `Evaluation` evaluates expressions for one request
with one budget for them and their variables (KEP-3488).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, Self

from controller_manager.common.cel.environment import Environment, Program, ProgramError
from controller_manager.common.cel.frame import Evaluate, EvaluationFrame
from controller_manager.common.cel.library.authorizer import AuthorizerValue, ResourceCheck
from controller_manager.common.cel.library.mutations import MUTATIONS
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Kind,
    ListType,
    MapType,
    ObjectType,
    Type,
    runtime_name,
)
from controller_manager.common.cel.values import CostBudget, CostExceeded, EvaluationError

MOST_OF_ONE = 1_000_000
"""Cost limit of one expression or variable."""
MOST_OF_POLICY = 10_000_000
"""Cost limit of all expressions of a policy for one binding and parameter."""
MOST_OF_CONDITIONS = 2_500_000
"""Cost limit of all match conditions of a policy."""

_TEXTS = MapType(STRING, STRING)
_GROUP_VERSION = {"group": STRING, "version": STRING}
_KIND = ObjectType("kubernetes.GroupVersionKind", {**_GROUP_VERSION, "kind": STRING})
_RESOURCE = ObjectType("kubernetes.GroupVersionResource", {**_GROUP_VERSION, "resource": STRING})
_USER = ObjectType(
    "kubernetes.UserInfo",
    {"username": STRING, "uid": STRING, "groups": ListType(STRING), "extra": MapType(STRING, ListType(STRING))},
)
REQUEST = ObjectType(
    "kubernetes.AdmissionRequest",
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
)
"""The type of `request`."""
_METADATA = ObjectType(
    "kubernetes.NamespaceMetadata",
    {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        "labels": _TEXTS,
        "annotations": _TEXTS,
        "creationTimestamp": TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP,
        "generation": INT,
        "finalizers": ListType(STRING),
    },
)
_CONDITION = ObjectType(
    "kubernetes.NamespaceCondition",
    {**dict.fromkeys(("status", "type", "message", "reason"), STRING), "lastTransitionTime": TIMESTAMP},
)
NAMESPACE = ObjectType(
    "kubernetes.Namespace",
    {
        "metadata": _METADATA,
        "spec": ObjectType("kubernetes.NamespaceSpec", {"finalizers": ListType(STRING)}),
        "status": ObjectType(
            "kubernetes.NamespaceStatus", {"conditions": ListType(_CONDITION), "phase": STRING}
        ),
    },
)  # fmt: skip
"""The type of `namespaceObject`; its times are JSON text, and cause an error where a timestamp is needed."""
_VARIABLES = "kubernetes.variables"
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class OutOfBudget(Exception):
    """The budget of an evaluation is used up; no more expressions are evaluated. Users see the message."""

    def __init__(self) -> None:
        super().__init__(_OUT_OF_BUDGET)


class Expression(NamedTuple):
    """An expression and its program; if it does not compile, the program is None and `problem` says why."""

    text: str
    program: Program | None
    problem: str = ""


class ExpressionResult(NamedTuple):
    """The value of an expression, or its error."""

    value: Any
    error: str = ""


@lru_cache(16)
def environment(*, params: bool, authorizer: bool) -> Environment:
    """Return the environment of expressions, with or without parameters and the authorizer."""
    return typed_environment(DYN, DYN if params else None, authorizer=authorizer, resource=authorizer)


def typed_environment(of: Type, params: Type | None, *, authorizer: bool, resource: bool) -> Environment:
    """Return the environment for declared object and parameter types, with or without `authorizer.requestResource`."""
    variables = {"object": of, "oldObject": of, "namespaceObject": NAMESPACE, "request": REQUEST}
    if params is not None:
        variables["params"] = params
    if authorizer:
        variables["authorizer"] = AuthorizerValue.type
    if resource:
        variables["authorizer.requestResource"] = ResourceCheck.type
    return Environment.base().extend(variables)


def compiled(within: Environment, text: str, *results: Type) -> Expression:
    """Compile an expression whose type must be one of `results`; any type if there are none."""
    try:
        program = within.compile(text)
    except ProgramError as error:
        return Expression(text, None, f"program instantiation failed: {error.issues[0].message}")
    except CompileError as error:
        return Expression(text, None, f"compilation failed: {error.display()}")
    if results and program.type not in results:
        wanted = runtime_name(results[0]) if len(results) == 1 else f"one of [{' '.join(map(runtime_name, results))}]"
        return Expression(text, None, f"must evaluate to {wanted} but got {runtime_name(program.type)}")
    return Expression(text, program)


class Composition:
    """The expressions of a policy, compiled in order; `variables` are those added so far. Without variables,
    `variables` is not declared, except in a policy that `mutates`: its expressions may also create objects and JSON
    patches.
    """

    def __init__(self, *, params: bool, mutates: bool = False) -> None:
        self._base: Callable[..., Environment] = partial(_mutating if mutates else environment, params=params)
        self._types: dict[str, Type] = {}
        self._environments: dict[bool, Environment] = {}
        self._composes = mutates
        self.variables: dict[str, Expression] = {}

    @classmethod
    def within(cls, base: Environment) -> Self:
        """Return a composition whose expressions may use an environment and `variables`."""
        made = cls(params=False)
        made._base = lambda *, authorizer: base
        made._composes = True
        return made

    def add(self, name: str, text: str) -> Expression:
        """Compile a variable, which expressions compiled later may use."""
        if not self.variables:
            self._composes = True
            self._environments.clear()
        expression = compiled(self._environment(authorizer=True), text)
        self.variables[name] = expression
        self._types[name] = DYN if expression.program is None else _plain(expression.program.type)
        self._environments.clear()
        return expression

    def compile(self, text: str, *results: Type, authorizer: bool = True) -> Expression:
        """Compile an expression whose type must be one of `results`; any type if there are none."""
        return compiled(self._environment(authorizer=authorizer), text, *results)

    def _environment(self, *, authorizer: bool) -> Environment:
        found = self._environments.get(authorizer)
        if found is None:
            found = self._base(authorizer=authorizer)
            if self._composes:
                found = found.extend({"variables": ObjectType(_VARIABLES, self._types)})
            self._environments[authorizer] = found
        return found


@lru_cache(4)
def _mutating(*, params: bool, authorizer: bool) -> Environment:
    return environment(params=params, authorizer=authorizer).with_libraries(MUTATIONS)


def _plain(found: Type) -> Type:
    """Return the type of a variable as other expressions see it: object types are dynamic."""
    if found.kind is Kind.LIST:
        return ListType(_plain(found.parameters[0]))
    if found.kind is Kind.MAP:
        return MapType(_plain(found.parameters[0]), _plain(found.parameters[1]))
    return found if found.kind in _KEPT else DYN


_KEPT = frozenset({
    Kind.ANY, Kind.BOOL, Kind.BYTES, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.NULL, Kind.STRING, Kind.TIMESTAMP,
    Kind.UINT,
})  # fmt: skip


class Evaluation:
    """Evaluates expressions for one request in order. `values` are the variables of their environment; the `variables`
    of the composition are added. `limit` is the cost limit of all expressions. With `quick`, an expression or variable
    above that cost raises `CostExceeded`, so that it can be evaluated outside of the event loop.
    """

    def __init__(
        self,
        values: dict[str, Any],
        variables: Mapping[str, Expression],
        limit: int = MOST_OF_POLICY,
        quick: int | None = None,
    ) -> None:
        self.remaining = limit
        self._quick = quick
        self._most = MOST_OF_ONE if quick is None else quick
        self._values = values
        if variables:
            values["variables"] = _Variables(variables, self)
        self._lazily = 0  # cost of variables since the start of the last expression

    def evaluate(self, expression: Expression) -> ExpressionResult:
        """Return the value of an expression. Raises `OutOfBudget`."""
        if expression.program is None:
            return ExpressionResult(None, f"compilation error: {expression.problem}")
        budget = CostBudget(self._most)
        value, error = None, ""
        self._lazily = 0
        try:
            value = expression.program.evaluate(self._values, budget)
        except EvaluationError as raised:
            error = raised.message
        except CostExceeded as exceeded:
            if self._quick is not None:
                raise
            error = str(exceeded)
        self.remaining -= budget.spent + self._lazily
        if self.remaining < 0:
            raise OutOfBudget
        if error:
            return ExpressionResult(None, f"expression '{expression.text}' resulted in error: {error}")
        return ExpressionResult(value)

    def variable(self, name: str, expression: Expression) -> Any:
        """Return the value of a variable. Raises `EvaluationError`."""
        if expression.program is None:
            raise EvaluationError(f'composited variable "{name}" fails to compile: {expression.problem}')
        budget = CostBudget(self._most)
        try:
            return expression.program.evaluate(self._values, budget)
        except EvaluationError as raised:
            raise EvaluationError(f'composited variable "{name}" fails to evaluate: {raised.message}') from None
        except CostExceeded as exceeded:
            if self._quick is not None:
                raise
            raise EvaluationError(f'composited variable "{name}" fails to evaluate: {exceeded}') from None
        finally:
            self._lazily += budget.spent


Exclude = Callable[[EvaluationFrame], bool]
"""Returns whether a match condition of a policy is certainly false; False also if this is costly to find out."""
_CONDITION_VALUES = ("object", "oldObject", "request", "namespaceObject")


def exclusion(conditions: Sequence[Expression]) -> Exclude:
    """Return a function that checks match conditions on an `exclusion_frame`, which all policies share for a request.
    Most policies are excluded by it; for the others, use an `Evaluation`.
    """
    each = [_is_false(condition.program.over(_CONDITION_VALUES)) for condition in conditions if condition.program]
    return each[0] if len(each) == 1 else lambda frame: any(is_false(frame) for is_false in each)


def _is_false(evaluate: Evaluate) -> Exclude:
    def is_false(frame: EvaluationFrame) -> bool:
        frame[0] = 0
        try:
            return evaluate(frame) is False and frame[0] <= frame[1]
        except (EvaluationError, CostExceeded, RecursionError):
            return False

    return is_false


def exclusion_frame(values: Mapping[str, Any], most: int) -> EvaluationFrame:
    """Return the frame for match conditions, each with a cost limit of `most`."""
    return [0, most, {}, *(values[name] for name in _CONDITION_VALUES)]


class _Variables(dict[str, Any]):
    """The variables of a policy as a map; they are evaluated on first use, and errors are stored too."""

    __slots__ = ("_evaluation", "_expressions", "_failed")

    def __init__(self, expressions: Mapping[str, Expression], evaluation: Evaluation) -> None:
        super().__init__()
        self._expressions = expressions
        self._evaluation = evaluation
        self._failed: dict[str, EvaluationError] = {}

    def __missing__(self, name: str) -> Any:
        """Return a value on first use. Raises `KeyError` on an error, which `get` then raises."""
        if name in self._failed:
            raise KeyError(name)
        try:
            value = self[name] = self._evaluation.variable(name, self._expressions[name])
        except EvaluationError as error:
            self._failed[name] = error
            raise KeyError(name) from None
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value. Raises `EvaluationError` if it has none."""
        try:
            return self[name]
        except KeyError:
            if name in self._failed:
                raise self._failed[name] from None
            return default
