"""What people read in `kubectl explain`: one sentence for each definition they use daily, and for all its fields."""

import json
from importlib.resources import files

import pytest

from apiserver_stub.openapi.definitions import built_in, full_name
from apiserver_stub.openapi.schemas import V2, V3, Dialect

TEXT = (files("apiserver_stub.openapi") / "descriptions.json").read_text()
DESCRIBED: dict[str, dict[str, str]] = json.loads(TEXT)
DEFINITIONS = built_in()
LONGEST = 200


@pytest.mark.parametrize("short", DESCRIBED)
def test_only_what_is_there_is_described(short: str) -> None:
    fields = set(DEFINITIONS[full_name(short)].get("fields", ()))
    assert set(DESCRIBED[short]) - fields == {""}


@pytest.mark.parametrize("dialect", [V2, V3], ids=["v2", "v3"])
@pytest.mark.parametrize("short", DESCRIBED)
def test_the_whole_and_every_field_are_served_with_a_sentence(short: str, dialect: Dialect) -> None:
    schema = dialect.definition(DEFINITIONS, full_name(short))
    assert schema["description"] == DESCRIBED[short][""]
    assert [name for name, field in schema.get("properties", {}).items() if not field.get("description")] == []


@pytest.mark.parametrize("short", DESCRIBED)
def test_what_is_said_is_one_sentence(short: str) -> None:
    for field, sentence in DESCRIBED[short].items():
        assert sentence.endswith("."), field
        assert ". " not in sentence, field
        assert "\n" not in sentence, field
        assert 10 < len(sentence) <= LONGEST, field
        assert sentence[0].isupper() or not sentence[0].isalpha(), field


def test_the_file_is_sorted_with_a_line_for_each_field() -> None:
    """So that a change of one sentence is a change of one line."""
    parts = [f"{json.dumps(short)}: {{\n{_lines(told)}\n}}" for short, told in sorted(DESCRIBED.items())]
    assert "".join(["{\n", ",\n".join(parts), "\n}\n"]) == TEXT


def _lines(told: dict[str, str]) -> str:
    return ",\n".join(f"  {json.dumps(field)}: {json.dumps(sentence)}" for field, sentence in sorted(told.items()))
