"""JSON paths of columns: results, and the limit on visited values."""

from typing import Any

import pytest

from apiserver_stub.kinds.printers.custom import printer_of
from apiserver_stub.kinds.values.jsonpath import JSONPath, Visits

TREE = {"a": {"b": [{"c": 1}, {"c": 2, "d.e": 3}], "f-g": {"c": 4}}, "n": None}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.f-g.c", [4]),
        (".a.missing.c", []),
        (".n", [None]),
        (".a.b[1].c", [2]),
        (".a.b[*].c", [1, 2]),
        (".a.b[1].d\\.e", [3]),
        (".a['f-g'].c", [4]),
        (".a.b[0,1].c", [1, 2]),
        (".a.b[?(@.c==2)].d\\.e", [3]),
        ("..c", [4, 1, 2]),
        ("", [TREE]),
    ],
)
def test_path_finds_values(path: str, found: list[Any]) -> None:
    assert sorted(map(str, JSONPath(path).find(TREE))) == sorted(map(str, found))


@pytest.mark.parametrize(
    "path",
    [
        "..*..*..*..*",
        "[*]" + "[*,*]" * 30,
        "[?(@[*,*][*,*][*,*][*,*][*,*])]",
        "[" + ",".join(["*"] * 2000) + "]" + "[*,*]" * 5,
    ],
)
def test_path_visiting_too_many_values_is_an_error(path: str) -> None:
    value = [[[[[n] * 10] * 10] * 10] * 10 for n in range(10)]
    with pytest.raises(LookupError):
        JSONPath(path).find(value)


def test_paths_can_share_a_visit_limit() -> None:
    visits, path = Visits(30), JSONPath("[*]")
    assert path.find([0] * 20, visits) == [0] * 20
    with pytest.raises(LookupError):
        path.find([0] * 20, visits)


@pytest.mark.parametrize(
    ("paths", "costly"),
    [
        ([".spec.replicas"] * 90, False),
        ([".spec.replicas"] * 200, True),
        ([".status.conditions[?(@.type=='Ready')].status", ".spec.containers[*].ports[*].port"], False),
        (["..name"] * 3, False),
        (["..name"] * 8, True),
        (["..a..b"], True),
        (["..a[?(@.b)]"], True),
        ([".a[0,0]"], True),
    ],
)
def test_many_or_wide_columns_are_costly(paths: list[str], costly: bool) -> None:
    columns = [{"name": "c", "type": "string", "jsonPath": path} for path in paths]
    assert printer_of(columns).costly is costly


def test_text_of_row_is_limited() -> None:
    columns = [{"name": "c", "type": "string", "jsonPath": ".spec"}] * 100
    cells = printer_of(columns).cells({"metadata": {"name": "a"}, "spec": {"text": "x" * 1_000_000}})
    assert sum(len(cell) for cell in cells if cell) < 6_000_000
    assert cells[-1] is None
