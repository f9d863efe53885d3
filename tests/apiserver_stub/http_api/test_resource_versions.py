"""Resource version semantics: the tables of get, list and watch, row by row."""

import asyncio
from typing import Any

import pytest

STORAGES = ("memory", "sqlite", "workers")
CONFIGS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def past(api: Any) -> list[str]:
    """Three versions of a collection: {a}, {a, b}, {b}; `a` lives in two of them."""
    versions = [(await api.config("a")).version, (await api.config("b")).version]
    await api.delete(f"{CONFIGS}/a")
    versions.append((await api.get(CONFIGS)).version)
    return versions


NOW, THEN = ["b"], ["a"]


@pytest.mark.parametrize(
    ("match", "limit", "version", "expected"),
    [
        ("", "", "", NOW),
        ("", "", "0", NOW),
        ("", "", "first", NOW),  # not older than
        ("", "5", "", NOW),
        ("", "5", "0", NOW),
        ("", "5", "first", THEN),  # exact
        ("Exact", "", "first", THEN),
        ("Exact", "5", "first", THEN),
        ("NotOlderThan", "", "0", NOW),
        ("NotOlderThan", "", "first", NOW),
        ("NotOlderThan", "5", "0", NOW),
        ("NotOlderThan", "5", "first", NOW),
    ],
)
async def test_list_by_version_and_match(
    api: Any, past: list[str], match: str, limit: str, version: str, expected: Any
) -> None:
    """Table list, all valid rows but those with a token; Exact answers with exactly the version asked for."""
    version = past[0] if version == "first" else version
    said = {"resourceVersionMatch": match, "limit": limit, "resourceVersion": version}
    query = "&".join(f"{name}={value}" for name, value in said.items() if value)
    answer = await api.get(f"{CONFIGS}?labelSelector=of&{query}")
    assert answer.names == expected
    assert answer.version == (past[0] if expected is THEN else past[2])


@pytest.mark.parametrize(("version", "status"), [("", 200), ("0", 200), ("other", 400)])
async def test_list_with_continue_token(api: Any, past: list[str], version: str, status: int) -> None:
    """Table list, the row of continuation: the version is the token's, and no other may be named."""
    first = await api.get(f"{CONFIGS}?limit=1&labelSelector=of&resourceVersion={past[1]}")
    token = first.tree["metadata"]["continue"]
    version = past[2] if version == "other" else version
    rest = await api.get(f"{CONFIGS}?limit=1&labelSelector=of&continue={token}&resourceVersion={version}")
    assert (first.names, rest.status) == (["a"], status)
    if status == 200:
        assert (rest.names, rest.version) == (["b"], past[1])


@pytest.mark.virtual
@pytest.mark.parametrize("what", [CONFIGS, f"{CONFIGS}/a"])
async def test_future_version_times_out(api: Any, what: str) -> None:
    """Errors: 504 after a brief wait, saying `Too large resource version`, with the seconds to wait."""
    await api.config("a")
    answer = await api.get(f"{what}?resourceVersion=1000000")
    assert (answer.status, answer.tree["reason"], answer.headers["retry-after"]) == (504, "Timeout", "1")
    assert "Too large resource version" in answer.tree["message"]
    assert answer.tree["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    "query", ["resourceVersion=1&resourceVersionMatch=Exact", "resourceVersion=1&limit=1", "watch=1&resourceVersion=1"]
)
@pytest.mark.virtual
async def test_expired_version_is_gone(started: Any, query: str) -> None:
    """Exact, Start at Exact: 410 Gone when the version is unavailable; Limits: history of five minutes."""
    async with started() as api:
        await api.config("a")
        await asyncio.sleep(301)
        await api.config("b")
        answer = await api.get(f"{CONFIGS}?{query}")
        assert (answer.status, answer.tree["code"], answer.tree["reason"]) == (410, 410, "Expired")


@pytest.mark.virtual
async def test_every_version_of_last_five_minutes_can_be_listed(api: Any) -> None:
    """Exact and Limits: each version of the window is answered as it was."""
    versions = []
    for number in range(20):
        versions.append((await api.config(f"c-{number:02}")).version)
        await asyncio.sleep(14)
    for number, version in enumerate(versions):
        answer = await api.get(f"{CONFIGS}?resourceVersion={version}&resourceVersionMatch=Exact&labelSelector=of")
        assert (answer.version, len(answer.names)) == (version, number + 1)
