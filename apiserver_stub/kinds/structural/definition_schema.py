"""The whole check of a schema that a definition of custom resources carries."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.structural.go_form import SCHEMA_FIELDS, schema_form, shown
from apiserver_stub.kinds.structural.schema_rules import TYPES, Ratchets, SchemaRules, Scope, check_keys, no_atom
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

# What may be said at the root if the status is a subresource, so that nothing is lost where that is judged alone.
_AT_ROOT = (
    "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items",
    "properties", "externalDocs", "example", PRESERVE, VALIDATIONS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """The rules that hold: those that a stored schema may go on breaking, and whether defaults must be pruned."""

    ratchets: Ratchets = field(default_factory=Ratchets)
    pruned_defaults: bool = True


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
    if not impossible:
        check_structural(schema, here, found)
    rules = SchemaRules(options.ratchets, None)
    rules.check(schema, here, Scope(), is_root=True)
    found.causes += [*rules.errors.causes, *rules.cel_errors.causes]
    if impossible and not found.causes:
        found.invalid(here, "", impossible)
    errors.causes += found.causes


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


def options_for(stored: Iterable[Tree]) -> SchemaOptions:
    """Return the rules that hold for an update of these schemas."""
    inner = [one for schema in stored for one in every_schema(schema)]
    ratchets = Ratchets(
        types=all(one.get("type") in ("", None, *TYPES) for one in inner),
        atomic_sets=not any(one.get(LIST_TYPE) == "set" and no_atom(one) for one in inner),
        list_keys=not any(_has_loose_keys(one) for one in inner),
    )
    return SchemaOptions(ratchets)


def _has_loose_keys(schema: Tree) -> bool:
    errors = ErrorList()
    check_keys(schema, None, errors)
    return bool(errors.causes)
