"""Validate the CEL rules of a schema in a definition: they must compile, and their estimated worst-case cost is
limited.

The estimate is the cost for one value times the number of such values that an object may have (KEP-2876).
"""

from dataclasses import dataclass, field
from heapq import nsmallest

from apiserver_stub.common.error_list import ErrorList, FieldPath, render
from apiserver_stub.kinds.structural.go_form import rule_form, shown
from apiserver_stub.kinds.structural.schema_rules import SchemaScope
from apiserver_stub.kinds.structural.structurality import EMBEDDED, VALIDATIONS
from controller_manager.common.api.tree import Tree
from controller_manager.common.cel.environment import Environment, Program
from controller_manager.common.cel.schema_types import MAX_REQUEST, DeclaredType, declared_type
from controller_manager.common.cel.sizes import declared_sizes
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import BOOL, STRING, OptionalType, Type

MOST_OF_RULE = 10_000_000
"""The cost limit of one rule over all values that it may be evaluated for."""
MOST_OF_SCHEMA = 100_000_000
"""The cost limit of all rules of a schema together."""
_MOST_LISTED = 4  # the number of most expensive rules in a message
_GREATEST = 2**64 - 1
_SELF, _OLD, _TYPE = "self", "oldSelf", "selfType"
_NO_TYPE = (
    f"internal error: failed to construct type information for {VALIDATIONS} rules: "
    "unable to convert structural schema to CEL declarations"
)
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


@dataclass(slots=True)
class Expressions:
    """One check of the rules of one schema. Stored rules (`same`) may keep their individual cost."""

    root: Tree
    same: bool
    total: int = 0
    expensive: list[tuple[int, FieldPath]] = field(default_factory=list)

    def check(self, schema: Tree, at: FieldPath, scope: SchemaScope, errors: ErrorList) -> None:
        """Report errors in the rules of a schema that has no other errors."""
        is_resource = schema is self.root or bool(schema.get(EMBEDDED))
        declared = declared_type(schema, _TYPE, resource=is_resource)
        if declared is None:
            errors.internal((at, VALIDATIONS), _NO_TYPE)
            return
        most = MAX_REQUEST // (declared.min_size + 1)
        times = most if scope.cardinality is None else scope.cardinality
        environments: dict[bool, Environment] = {}
        for index, rule in enumerate(schema[VALIDATIONS]):
            if errors.full:
                return
            is_optional = bool(rule.get("optionalOldSelf"))
            if is_optional not in environments:
                environments[is_optional] = _environment(declared.type, optional=is_optional)
            place = ((at, VALIDATIONS), index)
            self._check_rule(_Compiled(rule, environments[is_optional], declared), times, place, scope, errors)

    def check_total(self, at: FieldPath, errors: ErrorList) -> None:
        """Report rules that are too expensive together."""
        if self.total <= MOST_OF_SCHEMA:
            return
        for _, place in self.expensive:
            why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            errors.forbidden(place, why)
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.forbidden(at, _exceeding(what, self.total, MOST_OF_SCHEMA))

    def _check_rule(
        self, compiled: "_Compiled", times: int, at: FieldPath, scope: SchemaScope, errors: ErrorList
    ) -> None:
        rule = compiled.rule
        self._spend(min(compiled.cost * times, _GREATEST), "estimated rule cost", (at, "rule"), errors)
        if compiled.error:
            errors.invalid((at, "rule"), shown(rule_form(rule)), compiled.error)
        if compiled.message_error:
            errors.invalid((at, "messageExpression"), shown(rule_form(rule)), compiled.message_error)
        elif compiled.message_cost is not None:
            place = (at, "messageExpression")
            self._spend(compiled.message_cost, "estimated messageExpression cost", place, errors)
        if compiled.uses_old:
            if scope.uncorrelatable is not None:
                within = render(scope.uncorrelatable)
                why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                errors.invalid((at, "rule"), rule["rule"], why)
        elif rule.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            errors.invalid((at, "optionalOldSelf"), rule["optionalOldSelf"], why)

    def _spend(self, cost: int, what: str, at: FieldPath, errors: ErrorList) -> None:
        if cost > MOST_OF_RULE and not self.same:
            errors.forbidden(at, _exceeding(what, cost, MOST_OF_RULE))
        self.total = min(self.total + cost, _GREATEST)
        if cost >= MOST_OF_SCHEMA // 100:
            self.expensive = nsmallest(_MOST_LISTED, [*self.expensive, (cost, at)], key=lambda one: -one[0])


class _Compiled:
    """A compiled rule: its errors, and the cost of evaluating the rule and its message once."""

    def __init__(self, rule: Tree, environment: Environment, declared: DeclaredType) -> None:
        self.rule = rule
        self.cost, self.uses_old = 0, False
        self.message_error, self.message_cost = "", None
        text = rule.get("rule", "")
        program, self.error = _program(text, environment, BOOL, "", "cel expression must evaluate to a bool")
        if program is None:
            return
        self.uses_old = _OLD in program.variables
        self.cost = _most(program, declared)
        if rule.get("messageExpression"):
            why = "messageExpression must evaluate to a string"
            text, head = rule["messageExpression"], "messageExpression "
            message, self.message_error = _program(text, environment, STRING, head, why)
            if message is not None:
                self.message_cost = _most(message, declared)


def _environment(of: Type, *, optional: bool) -> Environment:
    return Environment.base().extend({_SELF: of, _OLD: OptionalType(of) if optional else of})


def _program(text: str, environment: Environment, of: Type, head: str, otherwise: str) -> tuple[Program | None, str]:
    """Return the program of an expression, or the reason why it does not compile."""
    if not text.strip():
        return None, ""
    try:
        program = environment.compile(text)
    except CompileError as error:
        return None, f"{head}compilation failed: {error.display()}"
    return (program, "") if program.type == of else (None, otherwise)


def _most(program: Program, declared: DeclaredType) -> int:
    return min(program.estimate(declared_sizes(declared.type)).max, _GREATEST)


def _exceeding(what: str, cost: int, limit: int) -> str:
    times = cost / limit
    factor = "more than 100x" if times > 100 else f"{times:f}x" if times < 1.5 else f"{times:.1f}x"
    return f"{what} exceeds budget by factor of {factor} {_ADVICE}"
