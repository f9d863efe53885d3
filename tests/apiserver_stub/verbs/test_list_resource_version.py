"""API concepts, Resource version semantics, list: every cell of the table."""

import pytest

from apiserver_stub.verbs.list import ListSemantics, VersionMatch, list_semantics
from controller_manager.common.api.errors import BadRequest, Invalid

LATEST, ANY, NOT_OLDER, EXACT, CONTINUE = (
    VersionMatch.LATEST,
    VersionMatch.ANY,
    VersionMatch.NOT_OLDER,
    VersionMatch.EXACT,
    VersionMatch.CONTINUE,
)

# (resourceVersionMatch, paging, resourceVersion unset, resourceVersion 0, another resourceVersion)
TABLE = [
    ("", {}, LATEST, ANY, NOT_OLDER),
    ("", {"limit": "5"}, LATEST, ANY, EXACT),
    ("", {"limit": "5", "continue": "t"}, CONTINUE, CONTINUE, None),
    ("", {"continue": "t"}, CONTINUE, CONTINUE, None),
    ("Exact", {}, None, None, EXACT),
    ("Exact", {"limit": "5"}, None, None, EXACT),
    ("Exact", {"limit": "5", "continue": "t"}, None, None, None),
    ("NotOlderThan", {}, None, ANY, NOT_OLDER),
    ("NotOlderThan", {"limit": "5"}, None, ANY, NOT_OLDER),
    ("NotOlderThan", {"limit": "5", "continue": "t"}, None, None, None),
    ("Newest", {}, None, None, None),
]
CELLS = [
    (match, paging, version, cell)
    for match, paging, *cells in TABLE
    for version, cell in zip(("", "0", "7"), cells, strict=True)
]


@pytest.mark.parametrize(("match", "paging", "version", "cell"), CELLS)
def test_every_combination_of_version_and_match(
    match: str, paging: dict[str, str], version: str, cell: VersionMatch | None
) -> None:
    asked = {"resourceVersionMatch": match, "resourceVersion": version, **paging}
    query = {name: value for name, value in asked.items() if value}
    if cell is None:
        with pytest.raises(Invalid if match else BadRequest):
            list_semantics(query)
        return
    revision = int(version or 0) if cell is not CONTINUE else 0
    assert list_semantics(query) == ListSemantics(
        cell, revision, int(paging.get("limit", 0)), paging.get("continue", "")
    )


@pytest.mark.parametrize(
    "query",
    [{"limit": "x"}, {"limit": "1.5"}, {"limit": "9" * 30}, {"limit": "\u0661"}, {"resourceVersion": "abc"},
     {"resourceVersion": "-1"}, {"resourceVersion": "9" * 30}, {"timeoutSeconds": "abc"}, {"timeoutSeconds": "1.5"}],
)  # fmt: skip
def test_invalid_parameter_is_a_bad_request(query: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        list_semantics(query)


def test_limit_below_one_means_no_limit() -> None:
    assert list_semantics({"limit": "0"}) == list_semantics({"limit": "-3"}) == ListSemantics(LATEST)
