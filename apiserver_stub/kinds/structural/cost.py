"""Fixed costs of processing an object: defaults, CEL rules, and code generated from its schema."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from apiserver_stub.common.offload import MANY, count_values, is_large
from apiserver_stub.kinds.schema.schema import Raw
from apiserver_stub.kinds.structural.defaulting import filler
from apiserver_stub.kinds.structural.embedded import has_embedded
from apiserver_stub.kinds.structural.lists import reporter
from apiserver_stub.kinds.structural.rules import compile_rules
from apiserver_stub.kinds.structural.schema import VALIDATIONS, StructuralSchema
from apiserver_stub.kinds.structural.shapes import takes

_ELEMENTS = ("items", "additionalProperties")
_MANY_SCHEMAS = 250  # these take some milliseconds to prepare
_MANY_STEPS = 20_000  # steps of rules, about a microsecond each
_MOST_NESTED = 4  # deeper nested loops count like this
_LOOP = re.compile(r"\.(?:all|exists|exists_one|existsOne|map|filter|transform\w+)\(")


class _Measure(NamedTuple):
    """Sizes of a schema: its schemas, the default values per object and per list or map element, and the number of
    rules by the exponent of the object size that bounds their steps.
    """

    schemas: int
    defaults: int
    defaults_of_elements: int
    rules: Counter[int]


class SchemaCost:
    """Decides which objects of a schema are processed in the thread for large objects."""

    def __init__(self, schema: StructuralSchema) -> None:
        self._schema = schema

    def is_costly(self, data: bytes) -> bool:
        """Return whether processing an object, given as JSON, is slow. It is slow if the object is large, gets many
        defaults, needs many rule steps, or is the first of a large schema.
        """
        if is_large(data):
            return True
        schemas, defaults, of_elements, rules = self._measure
        if schemas > _MANY_SCHEMAS and not self._schema.has_derived(prepare):
            return True
        if not (defaults or of_elements or rules):
            return False
        values = count_values(data) + 1
        if defaults + of_elements * values > MANY:
            return True
        steps: int = sum(count * values**power for power, count in rules.items())
        return steps > _MANY_STEPS

    @cached_property
    def _measure(self) -> _Measure:
        schemas, defaults, rules = 0, [0, 0], Counter[int]()
        for schema, in_element in _schemas(self._schema.raw):
            schemas += 1
            if (default := schema.get("default")) is not None:
                defaults[in_element] += _size(default)
            for rule in schema.get(VALIDATIONS) or ():
                rules[min(_MOST_NESTED, max(in_element, len(_LOOP.findall(rule["rule"]))))] += 1
        return _Measure(schemas, defaults[False], defaults[True], rules)


def prepare(schema: StructuralSchema) -> bool:
    """Generate all code for a schema. Always returns True."""
    takes(schema, {})
    filler(schema)
    reporter(schema)
    schema.derived(has_embedded)
    compile_rules(schema)
    return True


def _schemas(root: Raw) -> Iterator[tuple[Raw, bool]]:
    """Yield all nested schemas, starting with the root, and whether their values are inside list or map elements."""
    waiting: list[tuple[Any, bool]] = [(root, False)]
    while waiting:
        schema, in_element = waiting.pop()
        if isinstance(schema, dict):
            yield schema, in_element
            waiting += ((inner, in_element) for inner in (schema.get("properties") or {}).values())
            waiting += ((schema.get(name), True) for name in _ELEMENTS)


def _size(value: Any) -> int:
    """Return the number of values in a default."""
    size, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        size += 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return size
