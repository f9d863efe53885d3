"""Values in error messages as Kubernetes shows them: JSON of its internal types, including empty fields."""

from collections.abc import Callable
from typing import Any

import msgspec

from controller_manager.common.api.tree import Tree

Form = Callable[[Any], Any]
_NESTED = ("not", "properties", "allOf", "anyOf", "oneOf", "patternProperties", "definitions")
_NAMES = {"id": "ID", "$schema": "Schema", "$ref": "Ref", "jsonPath": "JSONPath", "openAPIV3Schema": "OpenAPIV3Schema"}
_ESCAPES = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e"}


def shown(value: Any) -> msgspec.Raw:
    """Return a value as JSON in Go's encoding, for a message."""
    text = msgspec.json.encode(value).decode()
    for mark, escape in _ESCAPES.items():
        text = text.replace(mark, escape)
    return msgspec.Raw(text.encode())


def _go_name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    words = name.removeprefix("x-kubernetes-").split("-")
    return "X" * name.startswith("x-") + "".join(word[:1].upper() + word[1:] for word in words)


def _same(value: Any) -> Any:
    return value


def _record(rows: str, **forms: Form) -> Form:
    """Return the form of a type from `name=zero value` rows. Go names start with a capital letter."""
    fields: list[tuple[str, str, Any]] = []
    for row in rows.split():
        name, _, zero = row.partition("=")
        fields.append((name, _go_name(name), msgspec.json.decode(zero or "null")))

    def show(tree: Tree) -> Any:
        if tree is None:
            return None
        found = {}
        for name, go, zero in fields:
            value = tree.get(name)
            found[go] = zero if value is None else forms.get(name, _same)(value)
        return found

    return show


def _each(form: Form) -> Form:
    def show(value: Any) -> Any:
        return {name: form(one) for name, one in value.items()} if isinstance(value, dict) else list(map(form, value))

    return show


def _items(value: Any) -> Any:
    if isinstance(value, list):
        return {"Schema": None, "JSONSchemas": _each(schema_form)(value)}
    return {"Schema": schema_form(value), "JSONSchemas": None}


def _or_bool(value: Any) -> Any:
    is_schema = isinstance(value, dict)
    return {"Allows": is_schema or value, "Schema": schema_form(value) if is_schema else None}


def schema_form(schema: Tree) -> Any:
    """Return a schema in the form of Go's internal type."""
    return _SCHEMA(schema)


rule_form = _record('rule="" message="" messageExpression="" reason fieldPath="" optionalOldSelf')
_ROWS = (
    'id="" $schema="" $ref description="" type="" nullable=false format="" title="" default maximum '
    "exclusiveMaximum=false minimum exclusiveMinimum=false maxLength minLength "
    'pattern="" maxItems minItems uniqueItems=false multipleOf enum maxProperties minProperties required items allOf '
    "oneOf anyOf not properties additionalProperties patternProperties dependencies additionalItems definitions "
    "externalDocs example x-kubernetes-preserve-unknown-fields x-kubernetes-embedded-resource=false "
    "x-kubernetes-int-or-string=false x-kubernetes-list-map-keys x-kubernetes-list-type x-kubernetes-map-type "
    "x-kubernetes-validations"
)
SCHEMA_FIELDS = {name: _go_name(name) for row in _ROWS.split() for name in (row.partition("=")[0],)}
"""The fields of a schema, in the order and with the names of Kubernetes' internal type."""
_SCHEMA = _record(
    _ROWS,
    items=_items,
    additionalProperties=_or_bool,
    additionalItems=_or_bool,
    externalDocs=_record('description="" url=""'),
    **{"not": schema_form, "x-kubernetes-validations": _each(rule_form)},
    **{name: _each(schema_form) for name in _NESTED[1:]},
)
_SCALE = _record('specReplicasPath="" statusReplicasPath="" labelSelectorPath')
version_form = _record(
    'name="" served=false storage=false deprecated=false deprecationWarning schema subresources '
    "additionalPrinterColumns selectableFields",
    schema=_record("openAPIV3Schema", openAPIV3Schema=schema_form),
    subresources=_record("status scale", scale=_SCALE),
    additionalPrinterColumns=_each(_record('name="" type="" format="" description="" priority=0 jsonPath=""')),
    selectableFields=_each(_record('jsonPath=""')),
)
