"""Validate custom objects: type, metadata, values, replica counts of the scale subresource, embedded resources, lists
and rules.

The order of the causes, including duplicates, is that of kube-apiserver.
"""

from dataclasses import dataclass

from apiserver_stub.common.error_list import NOWHERE, ErrorList, FieldPath, place
from apiserver_stub.kinds.resource_info import ValidationResult
from apiserver_stub.kinds.rules.metadata import check_custom_change, check_custom_metadata, check_embedded_metadata
from apiserver_stub.kinds.strategies.scale import ScalePaths, typed_in
from apiserver_stub.kinds.structural.correlation import Correlation
from apiserver_stub.kinds.structural.cost import prepare
from apiserver_stub.kinds.structural.defaulting import fill_defaults
from apiserver_stub.kinds.structural.objects import check_change, check_object, check_status, complete
from apiserver_stub.kinds.structural.rules import RuleCheck, check_rules, has_rules
from apiserver_stub.kinds.structural.schema import StructuralSchema
from controller_manager.common.api.tree import Tree

_GREATEST = 2**31 - 1
# Causes of these reasons prevent the evaluation of CEL rules.
_BLOCKING = frozenset({
    "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid",
})  # fmt: skip
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


@dataclass(frozen=True, slots=True)
class CustomRules:
    """The validation of one version of a custom resource."""

    api_version: str
    kind: str
    namespaced: bool
    schema: StructuralSchema
    scale: ScalePaths | None

    def complete(self, tree: Tree) -> bool:
        """See `objects.complete`."""
        self.schema.derived(prepare)
        return complete(tree, self.schema)

    def default(self, tree: Tree) -> None:
        """Set the defaults of an object, in place."""
        fill_defaults(tree, self.schema)

    def on_create(self, tree: Tree) -> None:
        """Replace the status sent by the client with the default status."""
        tree.pop("status", None)
        fill_defaults(tree, self.schema)

    def judge(self, new: Tree, old: Tree | None, subresource: str) -> ValidationResult:
        """Return the errors and warnings of a new object, or of an update of an old one. Defaults that admission
        removed are set again first.
        """
        errors = ErrorList()
        self.schema.derived(prepare)
        fill_defaults(new, self.schema)
        correlation = None if old is None else Correlation(new, old, self.schema)
        if correlation is None:
            whole = self._check_new(new, errors)
        else:
            whole = self._check_change(correlation, subresource, errors)
        check = RuleCheck(errors)
        if self.schema.derived(has_rules):
            if any(cause.reason in _BLOCKING for cause in errors.causes):
                errors.invalid(NOWHERE, None, _UNCHECKED)
            else:
                check_rules(self.schema, new, correlation, check)
        return ValidationResult(errors.causes, tuple(check.warnings), whole)

    def _check_new(self, new: Tree, errors: ErrorList) -> bool:
        if self._is_other(new, errors):
            return False
        check_custom_metadata(new, None, errors, namespaced=self.namespaced)
        return check_object(new, self.schema, self._check_scale, check_embedded_metadata, errors)

    def _check_change(self, correlation: Correlation, subresource: str, errors: ErrorList) -> bool:
        new, old = correlation.new, correlation.old
        check_custom_metadata(new, old, errors, namespaced=self.namespaced)
        check_custom_change(new, old, errors)
        if self._is_other(new, errors):
            return False
        check_custom_change(new, old, errors)
        if subresource == "status":
            check_status(correlation, self.schema, self._check_scale_status, errors)
            return False  # the rest may not fit a schema that has changed since
        return check_change(correlation, self.schema, self._check_scale, check_embedded_metadata, errors)

    def _is_other(self, tree: Tree, errors: ErrorList) -> bool:
        """Report an object of another type and return whether it is one. Nothing else of it is validated."""
        found = len(errors.causes)
        for name, expected in (("kind", self.kind), ("apiVersion", self.api_version)):
            if tree.get(name) != expected:
                errors.invalid(place(name), tree.get(name), f"must be {expected}")
        return len(errors.causes) > found

    def _check_scale(self, tree: Tree, errors: ErrorList) -> None:
        if self.scale is not None:
            _check_count(tree, self.scale.spec, errors)
            self._check_scale_status(tree, errors)

    def _check_scale_status(self, tree: Tree, errors: ErrorList) -> None:
        if self.scale is None:
            return
        _check_count(tree, self.scale.status, errors)
        if self.scale.selector:
            try:
                typed_in(tree, self.scale.selector, str)
            except TypeError as error:
                errors.invalid(_dotted(self.scale.selector), "", str(error))


def _check_count(tree: Tree, path: tuple[str, ...], errors: ErrorList) -> None:
    try:
        found = typed_in(tree, path, int) or 0
    except TypeError as error:
        errors.invalid(_dotted(path), 0, str(error))
        return
    if found < 0:
        errors.invalid(_dotted(path), found, "should be a non-negative integer")
    elif found > _GREATEST:
        errors.invalid(_dotted(path), found, f"should be less than or equal to {_GREATEST}")


def _dotted(path: tuple[str, ...]) -> FieldPath:
    return None, "." + ".".join(path)
