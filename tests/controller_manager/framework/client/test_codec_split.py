"""Splitting a collection into items is correct whenever it succeeds."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.framework.client.codec import split

NAMES = st.sampled_from(['a"', 'x,{"metadata":', '"items":[', "]}", "ü", '\\"', ""])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | NAMES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "items", "kind", "z"]), inner, max_size=3)
    ),
    max_leaves=12,
)
ITEMS = st.builds(
    lambda first, meta, rest: {**first, "metadata": meta, **rest},
    st.sampled_from([{}, {"kind": "Pod"}, {"apiVersion": "v1", "kind": "Pod"}]),
    VALUES,
    st.dictionaries(st.sampled_from(["spec", "items", "z"]), VALUES, max_size=2),
)
HEADS = st.sampled_from([{}, {"kind": "PodList"}, {"metadata": {"resourceVersion": "5"}}, {"metadata": {"items": [1]}}])


@settings(max_examples=200, deadline=None)
@given(HEADS, st.lists(ITEMS, max_size=4), st.booleans(), st.sampled_from([b"", b"\n", b" \n"]))
def test_split_collection_decodes_to_the_original(head: Any, items: list[Any], trailing: bool, end: bytes) -> None:
    tree = {**head, "items": items, **({"kind": "Last"} if trailing else {})}
    body = msgspec.json.encode(tree) + end
    found = split(body)
    if found is None:
        return
    try:
        top, pieces = msgspec.json.decode(found[0]), [msgspec.json.decode(body[a:b]) for a, b in found[1]]
    except msgspec.DecodeError:
        return
    assert {**top, "items": pieces} == tree


def test_plain_collections_are_always_split() -> None:
    for first in (
        b'{"metadata":{"name":"%d"}}',
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%d"},"a":[{"b":1}]}',
    ):
        items = [first % number for number in range(3)]
        body = b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[' + b",".join(items) + b"]}\n"
        found = split(body)
        assert found is not None
        assert found[0] == b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[]}'
        assert [body[start:stop] for start, stop in found[1]] == items
    assert split(b'{"items":[]}') == (b'{"items":[]}', [])


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"items":null}', b'{"items":[]', b'{"items":[{"a":1}]}', b'"items":[', b'{"items":[]} ']
)
def test_other_bodies_are_not_split(body: bytes) -> None:
    assert split(body) is None
