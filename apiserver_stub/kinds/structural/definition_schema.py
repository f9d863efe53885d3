"""The whole check of a schema that a definition of custom resources carries."""

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

# What may be said at the root if the status is a subresource, so that nothing is lost where that is judged alone.
_AT_ROOT = (
    "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items",
    "properties", "externalDocs", "example", PRESERVE, VALIDATIONS,
)  # fmt: skip


def nothing(_metadata: Tree, _at: FieldPath, _errors: ErrorList) -> None:
    """Accept all metadata."""


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """The rules that hold: those that a stored schema may go on breaking, whether defaults must be pruned, and those of
    metadata in defaults.
    """

    ratchets: Ratchets = field(default_factory=Ratchets)
    pruned_defaults: bool = True
    check_metadata: CheckMetadata = nothing


def check_schema(
    schema: Tree, at: FieldPath, options: SchemaOptions, errors: ErrorList, *, has_status: bool, same: bool
) -> None:
    """Report what is wrong with the schema of a version, below `at`. `has_status` if the status is a subresource;
    `same` if the schema is the stored one, whose rules may cost as much as they did.
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
    """Report what keeps a schema from being structural, and what is wrong with its defaults; returns the check of its
    rules in CEL, which are looked at if nothing is.
    """
    from apiserver_stub.kinds.structural.default_rules import DefaultRules  # CEL, which a server can begin without
    from apiserver_stub.kinds.structural.expressions import Expressions

    before = len(found.causes)
    check_structural(schema, at, found)
    if len(found.causes) == before and any("default" in one for one in every_schema(schema)):
        defaults = DefaultRules(options.check_metadata, options.pruned_defaults)
        defaults.check(StructuralSchema(schema, root=True), at)
        found.causes += defaults.errors.causes
    return Expressions(schema, same) if len(found.causes) == before else None


def _check_root(schema: Tree, at: FieldPath, errors: ErrorList) -> None:
    """Report the first thing that is said at the root and may not be."""
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
    """Return the rules that hold for an update of these schemas."""
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
