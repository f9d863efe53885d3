"""Compiles the expressions of a policy for each type of objects that it is about. It loads CEL."""

from collections.abc import Iterator, Mapping, Sequence

from controller_manager.common.api.admissionregistration import ValidatingAdmissionPolicySpec
from controller_manager.common.cel.admission import Composition, typed_environment
from controller_manager.common.cel.types import DYN, Type

from .types import GroupVersionKind

_FAILED = "compilation failed: "


def warnings(
    spec: ValidatingAdmissionPolicySpec, declared: Sequence[tuple[GroupVersionKind, Type]], params: Type | None
) -> Sequence[Mapping[str, str]]:
    """Return the type errors of validation and message expressions in the form of the policy status, given the declared
    types of objects and parameters.
    """
    compositions = [(kind, _composition(spec, of, params)) for kind, of in declared]
    found = []
    for at, expression in _expressions(spec):
        problems = [
            f"{kind}: {problem.removeprefix(_FAILED)}\n"
            for kind, composition in compositions
            if (problem := composition.compile(expression).problem).startswith(_FAILED)
        ]
        if problems:
            found.append({"fieldRef": at, "warning": "\n".join(problems)})
    return found


def _expressions(spec: ValidatingAdmissionPolicySpec) -> Iterator[tuple[str, str]]:
    for index, validation in enumerate(spec.validations):
        yield f"spec.validations[{index}].expression", validation.expression
        if validation.message_expression:
            yield f"spec.validations[{index}].messageExpression", validation.message_expression


def _composition(spec: ValidatingAdmissionPolicySpec, of: Type, params: Type | None) -> Composition:
    known = (params or DYN) if spec.param_kind is not None else None
    composition = Composition.within(typed_environment(of, known, authorizer=True, resource=False))
    for variable in spec.variables:
        composition.add(variable.name, variable.expression)
    return composition
