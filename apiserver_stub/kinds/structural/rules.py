"""The CEL rules of a structural schema (`x-kubernetes-validations`), compiled once and evaluated in order.

Errors for rules that are broken, fail or exceed their cost have kube-apiserver's messages (KEP-2876, KEP-4008).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import NO_VALUE, NOWHERE, ErrorList, FieldPath, key, render
from apiserver_stub.kinds.schema.schema import Raw
from apiserver_stub.kinds.structural.correlation import Correlation, MapList
from apiserver_stub.kinds.structural.field_path import resolve_path
from apiserver_stub.kinds.structural.schema import VALIDATIONS, StructuralSchema
from controller_manager.common.cel.environment import Environment, Program
from controller_manager.common.cel.schema_types import declared_type
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import BOOL, STRING, OptionalType, Type
from controller_manager.common.cel.values import NONE, CostBudget, CostExceeded, EvaluationError, Optional

OBJECT_BUDGET = 10_000_000
"""The cost limit of all rules for one object."""
_SELF, _OLD, _TYPE = "self", "oldSelf", "selfType"
_LONGEST_MESSAGE = 5 * 1024  # maximum bytes of the result of a messageExpression


class _Ended(Exception):
    """Stop evaluating rules."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A compiled rule. If it does not compile, `program` is None and `error` has the reason."""

    program: Program | None
    message_program: Program | None
    message: str
    source: str
    uses_old: bool
    optional_old: bool
    reason: str
    path: str
    error: str


@dataclass(frozen=True, slots=True)
class _Ratchet:
    """The correlation of a value. If it has none, the nearest one above it."""

    current: Correlation | None
    parent: Correlation | None = None

    def key(self, name: str) -> "_Ratchet":
        if self.current is None:
            return self
        if self.parent is None and name in ("apiVersion", "kind"):
            return _NO_RATCHET
        return _Ratchet(self.current.key(name), self.current)

    def index(self, index: int) -> "_Ratchet":
        return self if self.current is None else _Ratchet(self.current.index(index), self.current)

    @property
    def passes(self) -> bool:
        """Return whether a broken rule only causes a warning, because the value is unchanged."""
        found = self.current or self.parent
        return found is not None and found.equal


_NO_RATCHET = _Ratchet(None)


@dataclass(slots=True)
class RuleCheck:
    """One evaluation for one object: errors, warnings, and the remaining budget."""

    errors: ErrorList
    warnings: list[str] = field(default_factory=list)
    budget: int = OBJECT_BUDGET


def has_rules(schema: StructuralSchema) -> bool:
    """Return whether a schema has rules at any level, except in junctors."""
    return bool(schema.validations) or any(child.derived(has_rules) for child in schema.nodes())


def compile_rules(schema: StructuralSchema) -> None:
    """Compile all rules of a schema, if it has any."""
    if schema.derived(has_rules):
        schema.derived(_rules_of)


def check_rules(schema: StructuralSchema, new: Any, correlation: Correlation | None, check: RuleCheck) -> None:
    """Evaluate all rules of an object that has no other errors. `correlation` is None for a new object."""
    rules = schema.derived(_rules_of)
    if rules is not None and schema.derived(has_rules):
        ratchet = _NO_RATCHET if correlation is None else _Ratchet(correlation)
        try:
            rules.check(new, None if correlation is None else correlation.old, None, ratchet, check)
        except _Ended:
            return


def check_default_rules(schema: StructuralSchema, value: Any, at: FieldPath, check: RuleCheck) -> None:
    """Evaluate all rules for a default, once with itself as the old value and once without an old value."""
    before = len(check.errors.causes)
    if schema.derived(has_rules):
        rules = schema.derived(_rules_of)
        for old in (value, None):
            if len(check.errors.causes) > before:
                return
            with suppress(_Ended):
                rules.check(value, old, at, _NO_RATCHET, check)


class _Rules:
    """The rules of a schema and those below it. The branches of `allOf` are evaluated like the schema itself."""

    def __init__(self, schema: StructuralSchema, raw: Raw) -> None:
        self._schema = schema
        declared = declared_type(schema.raw, _TYPE, resource=schema.resource)
        declared_rules = raw.get(VALIDATIONS) or ()
        self._broken = bool(declared_rules) and declared is None
        self._rules = () if declared is None else tuple(_compiled(schema.raw, declared_rules, declared.type))
        self._shown = schema.raw.get("type") or ""
        self._alternatives = [one for branch in raw.get("allOf") or () if (one := _below(schema, branch))]
        named = raw.get("properties") or {}
        fields = {name: _below(child, named.get(name)) for name, child in schema.properties.items() if name in named}
        self._fields = {name: rules for name, rules in fields.items() if rules is not None}
        self._values = None if schema.additional is None else _below(schema.additional, raw.get("additionalProperties"))
        self._items = None if schema.items is None else _below(schema.items, raw.get("items"))

    @property
    def empty(self) -> bool:
        """Return whether there are no rules."""
        return not (self._broken or self._rules or self._alternatives or self._fields or self._values or self._items)

    def check(self, value: Any, old: Any, at: FieldPath, ratchet: _Ratchet, check: RuleCheck) -> None:
        """Evaluate all rules. Raises `_Ended` if evaluation must stop."""
        if value is None:
            return
        if self._broken:
            why = "rule compiler initialization error: failed to convert to declType for CEL validation rules"
            check.errors.invalid(at or NOWHERE, self._shown, why)
        elif self._rules:
            self._ask(value, old, at, ratchet, check)
        for alternative in self._alternatives:
            alternative.check(value, old, at, _Ratchet(None, ratchet.parent), check)
        if type(value) is dict:
            self._check_fields(value, old if type(old) is dict else {}, at, ratchet, check)
        elif type(value) is list and self._items is not None:
            others = MapList(self._schema, old)
            for index, item in enumerate(value):
                self._items.check(item, others.get(item), (at, index), ratchet.index(index), check)

    def _check_fields(
        self, value: Mapping[str, Any], old: Mapping[str, Any], at: FieldPath, ratchet: _Ratchet, check: RuleCheck
    ) -> None:
        if self._values is not None:
            for name, inner in value.items():
                self._values.check(inner, old.get(name), (at, key(name)), ratchet.key(name), check)
        for name, rules in self._fields.items():
            if name in value:
                rules.check(value[name], old.get(name), (at, name), ratchet.key(name), check)

    def _ask(self, value: Any, old: Any, at: FieldPath, ratchet: _Ratchet, check: RuleCheck) -> None:
        if check.budget <= 0:
            self._end(at, _OUT_OF_BUDGET, check)
        plain = {_SELF: value} if old is None else {_SELF: value, _OLD: old}
        for rule in self._rules:
            if rule.program is None:
                if rule.error:
                    check.errors.invalid(at or NOWHERE, self._shown, f"rule compile error: {rule.error}")
            elif not rule.uses_old or old is not None or rule.optional_old:
                variables = {**plain, _OLD: NONE if old is None else Optional(old)} if rule.optional_old else plain
                if not self._holds(rule, rule.program, variables, at, check):
                    self._fail(rule, plain, at, ratchet, check)

    def _end(self, at: FieldPath, why: str, check: RuleCheck) -> None:
        check.errors.invalid(at or NOWHERE, self._shown, why)
        check.budget = -1
        raise _Ended

    def _holds(
        self, rule: _Rule, program: Program, variables: Mapping[str, Any], at: FieldPath, check: RuleCheck
    ) -> bool:
        """Return whether a rule holds. A rule that fails to evaluate is reported here and counts as holding."""
        budget, why, exceeded = CostBudget(), "", False
        try:
            holds = program.evaluate(variables, budget)
        except CostExceeded as error:
            holds, why, exceeded = None, str(error), True
        except EvaluationError as error:
            holds, why = None, error.message
        if budget.spent > check.budget:
            self._end(at, _OUT_OF_BUDGET, check)
        check.budget -= budget.spent
        if exceeded:
            explanation = "no further validation rules will be run due to call cost exceeds limit for rule"
            self._end(at, f"'{why}': {explanation}: {rule.source}", check)
        if why.startswith("no such overload"):
            explanation = "call arguments did not match a supported operator, function or macro signature for rule"
            check.errors.invalid(at or NOWHERE, self._shown, f"'{why}': {explanation}: {rule.source}")
        elif why:
            check.errors.invalid(at or NOWHERE, self._shown, f"{why} evaluating rule: {rule.source}")
        return bool(why) or holds is True

    def _fail(self, rule: _Rule, plain: Mapping[str, Any], at: FieldPath, ratchet: _Ratchet, check: RuleCheck) -> None:
        """Report a broken rule as an error or a warning."""
        found = ErrorList()
        where: FieldPath = (at, rule.path) if rule.path else at or NOWHERE
        made = "" if rule.message_program is None else self._message(rule.message_program, plain, where, found, check)
        if not found.causes:
            shown = NO_VALUE if self._shown in ("object", "array") else plain[_SELF]
            _REASONS[rule.reason](found, where, shown, made or rule.message)
        if not rule.uses_old and ratchet.passes:
            check.warnings += (f"{cause.field}: {cause.message}" for cause in found.causes)
        else:
            check.errors.causes += found.causes
        if check.budget < 0:
            raise _Ended

    def _message(
        self, program: Program, plain: Mapping[str, Any], at: FieldPath, found: ErrorList, check: RuleCheck
    ) -> str:
        """Return the result of a messageExpression, or an empty string. If the cost limit is exceeded, report that in
        `found`.
        """
        budget, made, exceeded = CostBudget(), None, False
        try:
            made = program.evaluate(plain, budget)
        except CostExceeded:
            exceeded = True
        except EvaluationError:
            pass
        if budget.spent > check.budget:
            found.invalid(at, self._shown, _MESSAGE_OUT_OF_BUDGET)
            check.budget = -1
            return ""
        if exceeded:
            explanation = "no further validation rules will be run due to call cost exceeds limit for messageExpression"
            found.invalid(at, self._shown, f'{explanation}: "{program.expression}"')
            check.budget = -1
            return ""
        check.budget -= budget.spent
        text = made.strip() if type(made) is str else ""
        return "" if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE else text


_MESSAGE_OUT_OF_BUDGET = (
    "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
)
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


def _rules_of(schema: StructuralSchema) -> _Rules:
    return _Rules(schema, schema.raw)


def _below(schema: StructuralSchema, raw: Any) -> _Rules | None:
    """Return the rules of a schema, or of one of its branches, for the values of a node. None if it has none."""
    if not isinstance(raw, Mapping) or not _declares_rules(raw):
        return None
    if declared_type(schema.raw, _TYPE, resource=schema.resource) is None:
        return None  # values without a type are not visible to rules, nor are values below them
    rules = schema.derived(_rules_of) if raw is schema.raw else _Rules(schema, raw)
    return None if rules.empty else rules


def _declares_rules(raw: Raw) -> bool:
    inner = [*(raw.get("properties") or {}).values(), *(raw.get("allOf") or ())]
    inner += [raw.get("items"), raw.get("additionalProperties")]
    return bool(raw.get(VALIDATIONS)) or any(isinstance(one, Mapping) and _declares_rules(one) for one in inner)


def _compiled(raw: Raw, declared_rules: Sequence[Raw], of: Type) -> list[_Rule]:
    plain = partial(Environment.base().extend, {_SELF: of, _OLD: of})
    optional = partial(Environment.base().extend, {_SELF: of, _OLD: OptionalType(of)})
    made: dict[bool, Environment] = {}
    rules = []
    for one in declared_rules:
        is_optional = bool(one.get("optionalOldSelf"))
        if is_optional not in made:
            made[is_optional] = optional() if is_optional else plain()
        rules.append(_rule(raw, one, made[is_optional], optional=is_optional))
    return rules


def _rule(raw: Raw, declaration: Raw, environment: Environment, *, optional: bool) -> _Rule:
    expression, message = declaration.get("rule") or "", (declaration.get("message") or "").strip()
    program, error = _program(expression, environment, BOOL, "cel expression must evaluate to a bool")
    made, _ = _program(declaration.get("messageExpression") or "", environment, STRING, "")
    shown = message or expression.strip()
    path = ""
    if declaration.get("fieldPath"):
        try:
            path = render(resolve_path(declaration["fieldPath"], dict(raw))[0])
        except ValueError:
            path = ""
    if path.startswith("["):  # kube-apiserver shows a map key in fieldPath like a field name
        path = f".{path}"
    return _Rule(
        program=program,
        message_program=made,
        message=message or f"failed rule: {shown}",
        source=shown,
        uses_old=program is not None and _OLD in program.variables,
        optional_old=optional,
        reason=declaration.get("reason") or "",
        path=path,
        error=error,
    )


def _program(expression: str, environment: Environment, of: Type, otherwise: str) -> tuple[Program | None, str]:
    """Return the program of an expression, or the reason why it does not compile."""
    if not expression.strip():
        return None, ""
    try:
        program = environment.compile(expression)
    except CompileError as error:
        return None, f"compilation failed: {error.display()}"
    return (program, "") if program.type == of else (None, otherwise)


def _forbid(errors: ErrorList, at: FieldPath, _value: Any, why: str) -> None:
    errors.forbidden(at, why)


def _require(errors: ErrorList, at: FieldPath, _value: Any, why: str) -> None:
    errors.required(at, why)


def _repeat(errors: ErrorList, at: FieldPath, value: Any, _why: str) -> None:
    errors.duplicate(at, value)


def _refuse(errors: ErrorList, at: FieldPath, value: Any, why: str) -> None:
    errors.invalid(at, value, why)


_REASONS: Mapping[str, Callable[[ErrorList, FieldPath, Any, str], None]] = MappingProxyType({
    "": _refuse, "FieldValueInvalid": _refuse, "FieldValueForbidden": _forbid, "FieldValueRequired": _require,
    "FieldValueDuplicate": _repeat,
})  # fmt: skip
