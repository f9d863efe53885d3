"""Chunked listing, rules 1 to 5."""

import asyncio
from typing import Any

import pytest

STORAGES = ("memory", "workers")
CONFIGS = "/api/v1/namespaces/default/configmaps"


async def pages(api: Any, query: str) -> list[Any]:
    """All chunks, following the tokens."""
    found = [await api.get(f"{CONFIGS}?{query}")]
    while token := found[-1].tree["metadata"].get("continue"):
        found.append(await api.get(f"{CONFIGS}?{query}&continue={token}"))
    return found


@pytest.fixture
async def seven(api: Any) -> list[str]:
    await api.delete(CONFIGS)
    names = [f"c-{number}" for number in range(7)]
    for name in names:
        await api.config(name)
    return names


async def test_chunks_contain_every_object_once_in_order(api: Any, seven: list[str]) -> None:
    """Rules 1 and 2: at most `limit` items, a token while more remain, an empty one at the end."""
    chunks = await pages(api, "limit=3")
    assert [len(chunk.names) for chunk in chunks] == [3, 3, 1]
    assert [name for chunk in chunks for name in chunk.names] == seven
    exact = await pages(api, "limit=7")
    assert (len(exact), exact[0].tree["metadata"].get("continue", "")) == (1, "")


async def test_all_chunks_show_one_version(api: Any, seven: list[str]) -> None:
    """Rule 3: the version is constant, and later changes are not seen."""
    first = await api.get(f"{CONFIGS}?limit=2")
    await api.delete(f"{CONFIGS}/c-4")
    await api.patch(f"{CONFIGS}/c-5", {"data": {"k": "new"}})
    await api.config("c-45")
    rest = await api.get(f"{CONFIGS}?limit=100&continue={first.tree['metadata']['continue']}")
    assert first.names + rest.names == seven
    assert rest.version == first.version
    assert rest.tree["items"][3]["data"] == {"k": "c-5"}


@pytest.mark.virtual
async def test_token_lives_five_minutes_and_offers_another(api: Any, seven: list[str]) -> None:
    """Rule 4 and Errors: 410 Gone, with a token that lists the rest as it is now (inconsistent, but complete)."""
    token = (await api.get(f"{CONFIGS}?limit=3")).tree["metadata"]["continue"]
    await api.delete(f"{CONFIGS}/c-4")
    await asyncio.sleep(290)
    assert (await api.get(f"{CONFIGS}?limit=3&continue={token}")).names == seven[3:6]
    await asyncio.sleep(20)
    await api.patch(f"{CONFIGS}/c-0", {"data": {"k": "new"}})
    gone = await api.get(f"{CONFIGS}?limit=3&continue={token}")
    assert (gone.status, gone.tree["reason"]) == (410, "Expired")
    other = gone.tree["metadata"]["continue"]
    rest = await api.get(f"{CONFIGS}?limit=1&continue={other}")
    assert rest.names == ["c-3"]
    last = await api.get(f"{CONFIGS}?limit=5&continue={rest.tree['metadata']['continue']}")
    assert (last.names, last.version) == (["c-5", "c-6"], rest.version)


@pytest.mark.virtual
async def test_token_expires_without_changes(api: Any, seven: list[str]) -> None:
    """Rule 4, as upstream's conformance test on chunking and compaction: a new token, another version."""
    first = await api.get(f"{CONFIGS}?limit=2")
    token = first.tree["metadata"]["continue"]
    await asyncio.sleep(200)
    second = (await api.get(f"{CONFIGS}?limit=2&continue={token}")).tree["metadata"]["continue"]
    await asyncio.sleep(110)
    for late in (token, second):
        gone = await api.get(f"{CONFIGS}?limit=2&continue={late}")
        assert (gone.status, gone.tree["reason"]) == (410, "Expired")
        other = gone.tree["metadata"]["continue"]
        rest = await api.get(f"{CONFIGS}?limit=2&continue={other}")
        assert rest.names == (seven[2:4] if late == token else seven[4:6])
        assert rest.version != first.version
        assert rest.tree["metadata"]["remainingItemCount"] == 7 - 2 - len(rest.names) - (2 if late == second else 0)
    await asyncio.sleep(280)
    assert (await api.get(f"{CONFIGS}?limit=2&continue={rest.tree['metadata']['continue']}")).names == seven[6:]
    await asyncio.sleep(30)
    assert (await api.get(f"{CONFIGS}?limit=2&continue={rest.tree['metadata']['continue']}")).status == 410


async def test_all_namespaces_are_listed_in_chunks(api: Any, seven: list[str]) -> None:
    """Resource URI shapes: the collection across namespaces."""
    await api.post("/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "c-1"}})
    url = "/api/v1/configmaps?limit=4"
    first = await api.get(url)
    rest = await api.get(f"{url}&continue={first.tree['metadata']['continue']}")
    found = [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in first.tree["items"] + rest.tree["items"]]
    assert ("kube-system", "c-1") in found
    assert len(set(found)) == len(found) >= 8
