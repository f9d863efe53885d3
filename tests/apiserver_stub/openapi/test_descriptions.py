"""What people read in `kubectl explain`: one sentence for each definition they use daily, and for all its fields."""

import json
from importlib.resources import files

import pytest

from apiserver_stub.openapi.definitions import built_in, full_name

DESCRIBED: dict[str, dict[str, str]] = json.loads((files("apiserver_stub.openapi") / "descriptions.json").read_text())
DEFINITIONS = built_in()
LONGEST = 200
# Fields that every kind has, and what is said of them wherever nothing better is.
EVERYWHERE = {"apiVersion", "kind", "metadata", "spec", "status", "items"}


@pytest.mark.parametrize("short", DESCRIBED)
def test_a_definition_is_described_as_a_whole(short: str) -> None:
    fields = set(DEFINITIONS[full_name(short)].get("fields", ()))
    told = set(DESCRIBED[short])
    assert told - fields == {""}
    assert fields - told <= EVERYWHERE


@pytest.mark.parametrize("short", DESCRIBED)
def test_what_is_said_is_one_sentence(short: str) -> None:
    for field, sentence in DESCRIBED[short].items():
        assert sentence.endswith("."), field
        assert "\n" not in sentence, field
        assert 10 < len(sentence) <= LONGEST, field
        assert sentence[0].isupper() or not sentence[0].isalpha(), field
