"""Validate a schema in a CustomResourceDefinition."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.structural.embedded import CheckMetadata
from apiserver_stub.kinds.structural.go_form import SCHEMA_FIELDS, schema_form, shown
from apiserver_stub.kinds.structural.schema import StructuralSchema
from apiserver_stub.kinds.structural.schema_rules import TYPES, Ratchets, SchemaRules, SchemaScope, check_keys, no_atom
from apiserver_stub.kinds.structural.structurality import (
    DEEPEST,
    LIST_TYPE,
    PRESERVE,
    VALIDATIONS,
    check_structural,
    every_schema,
    too_deep,
    unsupported,
)
from controller_manager.common.api.tree import Tree

if TYPE_CHECKING:
    from apiserver_stub.kinds.structural.expressions import Expressions

# Keywords allowed at the root if status is a subresource. Others would not apply when only the status is validated.
_AT_ROOT = (
    "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items",
    "properties", "externalDocs", "example", PRESERVE, VALIDATIONS,
)  # fmt: skip


def nothing(_metadata: Tree, _at: FieldPath, _errors: ErrorList) -> None:
    """Accept any metadata."""


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """Validation options: rules that a stored schema may still break, whether defaults must be pruned, and the check of
    metadata in defaults.
    """

    ratchets: Ratchets = field(default_factory=Ratchets)
    pruned_defaults: bool = True
    check_metadata: CheckMetadata = nothing


def check_schema(
    schema: Tree, at: FieldPath, options: SchemaOptions, errors: ErrorList, *, has_status: bool, same: bool
) -> None:
    """Report errors in the schema of a version. Paths start at `at`.

    `has_status` means that the status is a subresource. `same` means that the schema is the stored one, so that its
    rules may keep their cost.
    """
    here = (at, "openAPIV3Schema")
    deep = too_deep(schema, here)
    if deep is not None:
        errors.forbidden(deep, f"schemas may be nested {DEEPEST} levels deep at most")
        return
    found = ErrorList()
    if has_status:
        _check_root(schema, here, found)
    if schema.get("nullable"):
        found.forbidden((here, "nullable"), "nullable cannot be true at the root")
    impossible = unsupported(schema)
    expressions = None if impossible else _expressions(schema, here, options, found, same=same)
    rules = SchemaRules(options.ratchets, None if expressions is None else expressions.check)
    rules.check(schema, here, SchemaScope(), is_root=True)
    found.causes += [*rules.errors.causes, *rules.cel_errors.causes]
    if impossible and not found.causes:
        found.invalid(here, "", impossible)
    if expressions is not None:
        expressions.check_total(here, found)
    errors.causes += found.causes


def _expressions(
    schema: Tree, at: FieldPath, options: SchemaOptions, found: ErrorList, *, same: bool
) -> "Expressions | None":
    """Report why a schema is not structural and errors in its defaults. Return the check of its CEL rules, which only
    run if there are no errors.
    """
    from apiserver_stub.kinds.structural.default_rules import DefaultRules  # loads CEL only when needed
    from apiserver_stub.kinds.structural.expressions import Expressions

    before = len(found.causes)
    check_structural(schema, at, found)
    if len(found.causes) == before and any("default" in one for one in every_schema(schema)):
        defaults = DefaultRules(options.check_metadata, options.pruned_defaults)
        defaults.check(StructuralSchema(schema, root=True), at)
        found.causes += defaults.errors.causes
    return Expressions(schema, same) if len(found.causes) == before else None


def _check_root(schema: Tree, at: FieldPath, errors: ErrorList) -> None:
    """Report the first keyword that is not allowed at the root."""
    for name in SCHEMA_FIELDS:
        if name not in schema:
            continue
        if name == "type" and schema["type"] != "object":
            why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            errors.invalid((at, "type"), schema["type"], why)
            return
        if name not in _AT_ROOT:
            allowed = " ".join(SCHEMA_FIELDS[one] for one in _AT_ROOT)
            why = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
            errors.invalid(at, shown(schema_form(schema)), why)
            return


def options_for(stored: Iterable[Tree], check_metadata: CheckMetadata) -> SchemaOptions:
    """Return the options for an update of these stored schemas."""
    from apiserver_stub.kinds.structural.default_rules import has_unpruned_defaults

    stored = tuple(stored)
    inner = [one for schema in stored for one in every_schema(schema)]
    ratchets = Ratchets(
        types=all(one.get("type") in ("", None, *TYPES) for one in inner),
        atomic_sets=not any(one.get(LIST_TYPE) == "set" and no_atom(one) for one in inner),
        list_keys=not any(_has_loose_keys(one) for one in inner),
    )
    unpruned = any(has_unpruned_defaults(StructuralSchema(schema, root=True)) for schema in stored)
    return SchemaOptions(ratchets, pruned_defaults=not unpruned, check_metadata=check_metadata)


def _has_loose_keys(schema: Tree) -> bool:
    errors = ErrorList()
    check_keys(schema, None, errors)
    return bool(errors.causes)
