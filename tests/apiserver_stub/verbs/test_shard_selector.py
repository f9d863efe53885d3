"""Shard selectors: results of kube-apiserver 1.36 with the gate ShardedListAndWatch on."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.verbs.shard_selector import parse_shard_selector
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.sharding import FIELDS, SPACE, ShardRange, ShardSelector, even_shard, hash_of

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data/shard_selectors.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row["shardSelector"] for row in ROWS])
def test_selectors_are_parsed_or_rejected_as_recorded(row: dict[str, Any]) -> None:
    if row["code"] == 200:
        assert str(parse_shard_selector(row["shardSelector"])) == row["selector"]
        return
    with pytest.raises(ApiError) as refusal:
        parse_shard_selector(row["shardSelector"])
    assert (refusal.value.code, refusal.value.reason, refusal.value.message) == (500, "", row["message"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8), ("sh-a", 0x46095918E1DA9678)],
)
def test_hash_is_fnv_1a(value: str, expected: int) -> None:
    """The first three are test vectors of the authors of FNV-1a."""
    assert hash_of(value) == expected


hashes = st.integers(0, SPACE - 1)
ranges = st.tuples(hashes, hashes).map(lambda pair: ShardRange(min(pair), max(pair) + 1))


@given(st.sampled_from(FIELDS), st.lists(ranges, min_size=1, max_size=6), st.text(max_size=40))
def test_selector_is_the_union_of_its_ranges(field: str, chosen: list[ShardRange], value: str) -> None:
    selector = ShardSelector(field, tuple(chosen))
    assert selector.has(value) == any(one.start <= hash_of(value) < one.end for one in chosen)
    assert parse_shard_selector(str(selector)) == selector


@given(st.integers(1, 64), st.text(max_size=40))
def test_every_value_is_in_exactly_one_even_shard(count: int, value: str) -> None:
    assert sum(even_shard(FIELDS[0], index, count).has(value) for index in range(count)) == 1
