"""Descriptions for `kubectl explain`: one sentence for each common definition and all its fields."""

import json
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from apiserver_stub.apis.openapi.definitions import built_in, full_name
from apiserver_stub.apis.openapi.schemas import V2, V3, Dialect

TEXT = (files("apiserver_stub.apis.openapi") / "descriptions.json").read_text()
DESCRIBED: dict[str, dict[str, str]] = json.loads(TEXT)
DEFINITIONS = built_in()
SENTENCES = [
    (f"{short}.{field}", sentence) for short, fields in DESCRIBED.items() for field, sentence in fields.items()
]
LONGEST = 200
# Left out: types that are seldom looked up by themselves, versions that may be removed, and lists.
SCALARS = ("api.resource.Quantity", "runtime.RawExtension", "util.intstr.IntOrString", "version.Info")
LESSER = re.compile(r"\.v\d+(alpha|beta)\d+\.|List$")


def test_every_stable_definition_is_described(read: Callable[[str], Any]) -> None:
    served = read("/openapi/v2")["definitions"]
    silent = {name for name, schema in served.items() if "description" not in schema and not LESSER.search(name)}
    assert {name for name in silent if not name.endswith(SCALARS)} == set()


def test_descriptions_name_existing_fields() -> None:
    for short, shown in DESCRIBED.items():
        fields = set(DEFINITIONS[full_name(short)].get("fields", ()))
        assert set(shown) - fields == {""}, short


@pytest.mark.parametrize("dialect", [V2, V3], ids=["v2", "v3"])
def test_described_definitions_cover_every_field(dialect: Dialect) -> None:
    for short, shown in DESCRIBED.items():
        schema = dialect.definition(DEFINITIONS, full_name(short))
        assert schema["description"] == shown[""]
        silent = {name for name, field in schema.get("properties", {}).items() if not field.get("description")}
        assert silent == set(), short


def test_each_description_is_one_sentence() -> None:
    for where, sentence in SENTENCES:
        assert sentence.endswith("."), where
        assert not re.search(r"\. [A-Z]|\n", sentence), where
        assert 10 < len(sentence) <= LONGEST, where
        assert sentence[0].isupper() or not sentence[0].isalpha(), where


def test_file_is_sorted_with_one_field_per_line() -> None:
    """A change of one sentence is then a change of one line."""
    parts = [f"{json.dumps(short)}: {{\n{_lines(shown)}\n}}" for short, shown in sorted(DESCRIBED.items())]
    assert "".join(["{\n", ",\n".join(parts), "\n}\n"]) == TEXT


def _lines(expected: dict[str, str]) -> str:
    return ",\n".join(f"  {json.dumps(field)}: {json.dumps(sentence)}" for field, sentence in sorted(expected.items()))
