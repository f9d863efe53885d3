"""CEL expressions over the claims of a token (`claims`) and the mapped user (`user`)."""

from functools import lru_cache
from typing import Any

from controller_manager.common.cel.environment import Environment, Program, ProgramError
from controller_manager.common.cel.property_names import unescaped
from controller_manager.common.cel.syntax import Call, CompileError, Ident, Literal, Node, Select, walk
from controller_manager.common.cel.types import ANY, BOOL, STRING, Kind, ListType, MapType, ObjectType, Type
from controller_manager.common.cel.values import CostBudget, CostExceeded, EvaluationError
from controller_manager.common.serving.authentication import User

CLAIMS, USER = "claims", "user"
_OPTIONAL_FIELD = "_?._"
_BY_NAME = (_OPTIONAL_FIELD, "_[_]", "_[?_]")


class ExpressionError(ValueError):
    """An expression is invalid, or failed for a token; `internal` if it failed only during planning."""

    def __init__(self, message: str, *, internal: bool = False) -> None:
        super().__init__(message)
        self.internal = internal


class Expression:
    """A compiled expression over one variable."""

    def __init__(self, text: str, variable: str, program: Program, fields: frozenset[str]) -> None:
        self.text = text
        self._variable = variable
        self._program = program
        self._fields = fields

    def selects(self, field: str) -> bool:
        """Return whether the expression selects this field of the variable, as in `claims.email`."""
        return field in self._fields

    def evaluate(self, value: dict[str, Any]) -> Any:
        """Evaluate for claims from `claims_value`, or a user from `user_value`. Raises `ExpressionError`."""
        try:
            return self._program.evaluate({self._variable: value}, CostBudget())
        except (EvaluationError, CostExceeded) as error:
            raise ExpressionError(f"expression '{self.text}' resulted in error: {error.args[0]}") from None


def compile_mapping(text: str) -> Expression:
    """Compile an expression over claims with a result of any type. Raises `ExpressionError`."""
    return _compile(text, CLAIMS)


def compile_claim_rule(text: str) -> Expression:
    """Compile a boolean expression over claims. Raises `ExpressionError`."""
    return _compile(text, CLAIMS, BOOL)


def compile_user_rule(text: str) -> Expression:
    """Compile a boolean expression over a user. Raises `ExpressionError`."""
    return _compile(text, USER, BOOL)


def claims_value(claims: Any) -> Any:
    """Return claims as an expression sees them: all numbers are doubles. Raises `RecursionError`."""
    kind = type(claims)
    if kind is dict:
        return {name: claims_value(value) for name, value in claims.items()}
    if kind is list:
        return [claims_value(item) for item in claims]
    return float(claims) if kind is int else claims


def user_value(user: User) -> dict[str, Any]:
    """Return a user as an expression sees it."""
    extra = {name: list(values) for name, values in user.extra.items()}
    return {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}


@lru_cache(2)
def _environment(variable: str) -> Environment:
    strings = ListType(STRING)
    of: dict[str, Type] = {
        CLAIMS: MapType(STRING, ANY),
        USER: ObjectType(
            "kubernetes.UserInfo",
            {"username": STRING, "uid": STRING, "groups": strings, "extra": MapType(STRING, strings)},
        ),
    }
    return Environment.base().extend({variable: of[variable]})


def _compile(text: str, variable: str, returns: Type | None = None) -> Expression:
    environment = _environment(variable)
    try:
        tree = environment.checked(text)
    except CompileError as error:
        raise ExpressionError(f"compilation failed: {error.display()}") from None
    if returns is not None and tree.type != returns:
        raise ExpressionError(f"must evaluate to {returns}")
    fields = frozenset(_selected(tree, variable))
    _unescape(tree)
    try:
        return Expression(text, variable, Program(text, tree, environment), fields)
    except ProgramError as error:
        raise ExpressionError(f"program instantiation failed: {error}", internal=True) from None


def _selected(tree: Node, variable: str) -> list[str]:
    """Return the fields of a variable that an expression selects by name."""
    found = []
    for node in walk(tree):
        if isinstance(node, Select) and _is(node.operand, variable):
            found.append(node.field)
        elif isinstance(node, Call) and node.function == _OPTIONAL_FIELD and _is(node.arguments[0], variable):
            name = node.arguments[1]
            found += [name.value] if isinstance(name, Literal) else []
    return found


def _is(node: Node, variable: str) -> bool:
    return isinstance(node, Ident) and node.name == variable


def _unescape(tree: Node) -> None:
    """Unescape the names of map entries like those of declared fields: `claims.a__dot__b`."""
    for node in walk(tree):
        if isinstance(node, Select) and node.operand.type.kind is not Kind.STRUCT:
            node.field = unescaped(node.field) or node.field
        elif isinstance(node, Call) and node.function in _BY_NAME:
            name = node.arguments[1]
            if isinstance(name, Literal) and isinstance(name.value, str):
                name.value = unescaped(name.value) or name.value
