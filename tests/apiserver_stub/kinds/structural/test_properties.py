"""Properties of any structural schema and value: the quick check and the full check agree."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.custom_objects import CustomRules
from apiserver_stub.kinds.structural.defaulting import fill_defaults
from apiserver_stub.kinds.structural.objects import complete, fit
from apiserver_stub.kinds.structural.pruning import prune, prune_nulls
from apiserver_stub.kinds.structural.schema import StructuralSchema
from apiserver_stub.kinds.structural.shapes import takes
from apiserver_stub.kinds.structural.values import check

NAMES = st.sampled_from(["a", "b", "c", "d"])
SMALL = st.integers(0, 4)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 12), st.sampled_from([0.5, 1.5, 2.0]), st.sampled_from(["", "a", "abcde"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)


def schemas_with(**words: Any) -> Any:
    """Schemas with some of these keywords."""
    return st.fixed_dictionaries({}, optional=words)


TEXTS = schemas_with(
    minLength=SMALL, maxLength=SMALL, pattern=st.sampled_from(["^a", "b$"]), format=st.sampled_from(["date", "ipv4"]),
    enum=st.just(["a", ""]), default=st.sampled_from(["", "a"]), nullable=st.booleans(),
).map(lambda words: {"type": "string", **words})  # fmt: skip
NUMBERS = st.tuples(
    st.sampled_from(["integer", "number"]),
    schemas_with(
        minimum=SMALL, maximum=SMALL, exclusiveMinimum=st.booleans(), exclusiveMaximum=st.booleans(),
        multipleOf=st.just(2), format=st.sampled_from(["int32", "int64", "double"]), nullable=st.booleans(),
    ),
).map(lambda found: {"type": found[0], **found[1]})  # fmt: skip
PLAIN = st.one_of(
    TEXTS,
    NUMBERS,
    schemas_with(nullable=st.booleans(), default=st.booleans()).map(lambda words: {"type": "boolean", **words}),
    st.just({"x-kubernetes-int-or-string": True}),
    st.just({"x-kubernetes-preserve-unknown-fields": True}),
)


def nested_schemas(inner: Any) -> Any:
    """Schemas that contain others."""
    sized = schemas_with(minProperties=SMALL, maxProperties=SMALL, nullable=st.booleans(), required=st.just(["a"]))
    named = st.tuples(
        st.dictionaries(NAMES, inner, min_size=1, max_size=3),
        sized,
        schemas_with(**{"x-kubernetes-preserve-unknown-fields": st.just(True), "default": st.just({})}),
    ).map(lambda found: {"type": "object", "properties": found[0], **found[1], **found[2]})
    mapped = st.tuples(inner, sized).map(lambda found: {"type": "object", "additionalProperties": found[0], **found[1]})
    listed = st.tuples(inner, schemas_with(minItems=SMALL, maxItems=SMALL, nullable=st.booleans())).map(
        lambda found: {"type": "array", "items": found[0], **found[1]}
    )
    return named | mapped | listed


SCHEMAS = st.recursive(PLAIN, nested_schemas, max_leaves=6)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, VALUES)
def test_quick_check_accepts_only_what_full_check_accepts(raw: Any, value: Any) -> None:
    schema = StructuralSchema(raw)
    if takes(schema, value):
        assert not check(value, raw)
        seen = copy.deepcopy(value)
        assert prune(seen, schema) == []
        prune_nulls(seen, schema)
        assert json.dumps(seen) == json.dumps(value)


OBJECTS = st.tuples(st.dictionaries(NAMES, SCHEMAS, max_size=3), st.booleans()).map(
    lambda found: (
        {"type": "object", "properties": found[0]}
        | ({"x-kubernetes-preserve-unknown-fields": True} if found[1] else {})
    )
)


@settings(max_examples=300, deadline=None)
@given(OBJECTS, st.dictionaries(NAMES, VALUES, max_size=4))
def test_fitting_and_defaulting_are_idempotent(raw: Any, tree: Any) -> None:
    schema = StructuralSchema(raw, root=True)
    fit(tree, schema)
    again = copy.deepcopy(tree)
    assert fit(again, schema).unknown == ()
    assert again == tree
    complete(tree, schema)
    again = copy.deepcopy(tree)
    complete(again, schema)
    assert again == tree
    assert not fill_defaults(again, schema)


@settings(max_examples=300, deadline=None)
@given(OBJECTS, st.dictionaries(NAMES, VALUES, max_size=4))
def test_complete_object_stays_complete_after_reading(raw: Any, tree: Any) -> None:
    schema = StructuralSchema(raw, root=True)
    tree |= {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "default"}}
    if CustomRules("example.com/v1", "Thing", True, schema, None).judge(tree, None, "").whole:
        assert not complete(json.loads(json.dumps(tree)), schema)
