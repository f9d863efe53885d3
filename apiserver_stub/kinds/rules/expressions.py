"""Validation of CEL expressions of policies and match conditions: they must compile and have the right type.

This module loads CEL, so it is imported only when there is an expression to check.
"""

import re
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from controller_manager.common.cel.admission import Composition, Expression, compiled, environment
from controller_manager.common.cel.library.mutations import PATCH_OBJECT, PATCH_OPERATIONS
from controller_manager.common.cel.property_names import KEYWORDS
from controller_manager.common.cel.types import BOOL, NULL, STRING

_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_UNSPECIFIED = "expression is not specified"
_RESULTS = {"ApplyConfiguration": PATCH_OBJECT, "JSONPatch": PATCH_OPERATIONS}
_NOT_PLANNED = "program instantiation failed"
_EMPTY = "must be non-empty if specified"
_LONGEST_VALUE = 5 * 1024  # bytes of an audit annotation's expression


def check_condition(condition: Any, at: FieldPath, errors: ErrorList, *, params: bool) -> None:
    """Report errors in the expression of a match condition. Messages show it without surrounding spaces."""
    text = (condition.get("expression") or "").strip()
    if not text:
        errors.required((at, "expression"))
        return
    _report(compiled(environment(params=params, authorizer=True), text, BOOL), (at, "expression"), errors)


def check_policy(spec: Any, at: FieldPath, errors: ErrorList) -> Composition:
    """Report errors in the variables of a policy. Return the compiler for expressions that refer to them."""
    composition = Composition(params="paramKind" in spec)
    for index, variable in enumerate(spec.get("variables") or ()):
        _check_variable(variable, composition, ((at, "variables"), index), errors)
    return composition


def mutating(spec: Any) -> Composition:
    """Return the compiler for the mutations of a policy. Its variables have been checked before."""
    composition = Composition(params="paramKind" in spec, mutates=True)
    for variable in spec.get("variables") or ():
        if (text := variable.get("expression") or "").strip():
            composition.add(variable.get("name") or "", text)
    return composition


def check_mutation(kind: str, mutation: Any, composition: Composition, at: FieldPath, errors: ErrorList) -> None:
    """Report errors in the expression of a mutation of this kind. Messages show it without surrounding spaces."""
    text = (mutation.get("expression") or "").strip()
    if text:
        _report(composition.compile(text, _RESULTS[kind]), (at, "expression"), errors)
    else:
        errors.required((at, "expression"))


def check_validation(validation: Any, composition: Composition, at: FieldPath, errors: ErrorList) -> None:
    """Report errors in the expressions of a validation."""
    text, message = validation.get("expression") or "", validation.get("messageExpression") or ""
    if text.strip():
        _report(composition.compile(text, BOOL), (at, "expression"), errors)
    else:
        errors.required((at, "expression"), _UNSPECIFIED)
    if message.strip():
        _report(composition.compile(message, STRING, authorizer=False), (at, "messageExpression"), errors)
    elif message:
        errors.invalid((at, "messageExpression"), message, _EMPTY)


def check_annotation(annotation: Any, composition: Composition, at: FieldPath, errors: ErrorList) -> None:
    """Report errors in the expression of an audit annotation."""
    place = at, "valueExpression"
    text = annotation.get("valueExpression") or ""
    trimmed = text.strip()
    if not trimmed:
        errors.required(place, "valueExpression is not specified")
    elif len(trimmed.encode()) > _LONGEST_VALUE:
        errors.required(place, f"must not exceed {_LONGEST_VALUE} bytes in length")
    else:
        found = composition.compile(trimmed, STRING, NULL)
        _report(found._replace(text=text), place, errors)


def _check_variable(variable: Any, composition: Composition, at: FieldPath, errors: ErrorList) -> None:
    name, text = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        errors.required((at, "name"), "name is not specified")
    elif not _IDENTIFIER.fullmatch(name) or name in KEYWORDS:
        errors.invalid((at, "name"), name, "must be a valid CEL identifier")
    if text.strip():
        _report(composition.add(name, text), (at, "expression"), errors)
    else:
        errors.required((at, "expression"), _UNSPECIFIED)


def _report(expression: Expression, at: FieldPath, errors: ErrorList) -> None:
    if expression.problem.startswith(_NOT_PLANNED):
        errors.internal(at, expression.problem)
    elif expression.problem:
        errors.invalid(at, expression.text, expression.problem)
