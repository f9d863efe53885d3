"""Validate the defaults in a schema: they must be pruned and valid for their own schema, including its CEL rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from apiserver_stub.common.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.schema.schema import Raw
from apiserver_stub.kinds.structural.embedded import CheckMetadata, WrongMetadataError, check_embedded, coerce
from apiserver_stub.kinds.structural.pruning import prune
from apiserver_stub.kinds.structural.rules import RuleCheck, check_default_rules
from apiserver_stub.kinds.structural.schema import INT_OR_STRING, TYPE_META, StructuralSchema
from apiserver_stub.kinds.structural.values import add_causes, check
from apiserver_stub.kinds.values.trees import deep_copy
from controller_manager.common.api.tree import Tree

_TYPE_META = {"apiVersion": "validation/v1", "kind": "Validation"}
# Returns the object that contains a value.
Surround = Callable[[object], object]


def _itself(value: object) -> object:
    return {**_TYPE_META, **value} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class _Scope:
    """The resource that a schema belongs to, a function that wraps a value into it, and whether the schema is for its
    type or metadata.
    """

    resource: StructuralSchema
    surround: Surround = _itself
    of_metadata: bool = False

    def below(self, name: str, *, of_metadata: bool = False) -> "_Scope":
        surround = self.surround
        return _Scope(self.resource, lambda value: surround({name: value}), self.of_metadata or of_metadata)

    def items(self) -> "_Scope":
        surround = self.surround
        return _Scope(self.resource, lambda value: surround([value]), self.of_metadata)


@dataclass(slots=True)
class DefaultRules:
    """One validation of the defaults of a schema. If `pruned`, defaults must not have unknown fields."""

    check_metadata: CheckMetadata
    pruned: bool
    rules: RuleCheck = field(default_factory=lambda: RuleCheck(ErrorList()))

    @property
    def errors(self) -> ErrorList:
        """Return the errors found so far."""
        return self.rules.errors

    def check(self, schema: StructuralSchema, at: FieldPath, scope: _Scope | None = None) -> None:
        """Report errors in the defaults of a schema and of those below it."""
        if self.errors.full or self.rules.budget < 0:
            return
        if scope is None or schema.resource:
            scope = _Scope(schema)
        if schema.default_value is not None:
            self._check_default(schema, (at, "default"), scope)
        if schema.items is not None:
            self.check(schema.items, (at, "items"), scope.items())
        for name, inner in schema.properties.items():
            below = scope.below(name, of_metadata=schema.resource and name in TYPE_META)
            self.check(inner, ((at, "properties"), key(name)), below)

    def _check_default(self, schema: StructuralSchema, at: FieldPath, scope: _Scope) -> None:
        value, found = schema.default_value, ErrorList()
        if scope.of_metadata:
            self._check_metadata(value, at, scope, found)
        else:
            self._check_unknown(value, schema, at)
            try:
                self._check_resources(value, schema, at, found)
            except WrongMetadataError as error:
                found.invalid(at, value, str(error))
        if not found.causes:
            add_causes(check(value, _without_types(schema.raw)), found, at)
        self.errors.causes += found.causes
        if not found.causes:
            check_default_rules(schema, value, at, self.rules)

    def _check_metadata(self, value: object, at: FieldPath, scope: _Scope, found: ErrorList) -> None:
        whole, wrong = scope.surround(deep_copy(value)), ErrorList()
        try:
            self._check_resources(whole, scope.resource, None, wrong)
        except WrongMetadataError as error:
            found.invalid(at, value, f"must result in valid metadata: {error}")
            return
        if wrong.causes:
            messages = [f"{cause.field}: {cause.message}" for cause in wrong.causes]
            why = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
            found.invalid(at, value, f"must result in valid metadata: {why}")

    def _check_unknown(self, value: object, schema: StructuralSchema, at: FieldPath) -> None:
        if self.pruned and isinstance(value, dict | list):
            tree: Tree = deep_copy(value)
            if prune(tree, schema):
                self.errors.invalid(at, value, "must not have unknown fields")

    def _check_resources(self, value: object, schema: StructuralSchema, at: FieldPath, found: ErrorList) -> None:
        """Report errors in embedded resources of a value. Raises `WrongMetadataError`."""
        if not isinstance(value, dict | list):
            return
        tree: Tree = deep_copy(value)
        coerce(tree, schema, itself=schema.resource)
        check_embedded(tree, schema, self.check_metadata, found, at, itself=schema.resource)


def _without_types(raw: Raw) -> Raw:
    """Return the schema with any type allowed for int-or-string values. Kubernetes does so for defaults only."""
    if isinstance(raw, Mapping):
        return {name: _without_types(inner) for name, inner in raw.items() if name != INT_OR_STRING}
    return [_without_types(inner) for inner in raw] if isinstance(raw, list) else raw


def has_unpruned_defaults(schema: StructuralSchema) -> bool:
    """Return whether a default has fields that are not in its schema."""
    if isinstance(schema.default_value, dict | list) and prune(deep_copy(schema.default_value), schema):
        return True
    return any(has_unpruned_defaults(child) for child in schema.nodes())
