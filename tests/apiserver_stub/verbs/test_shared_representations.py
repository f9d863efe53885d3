"""An object is encoded once for all clients that get, list or watch it in the same representation."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver_stub.encode import protobuf
from apiserver_stub.kinds.registry import built_in

CONFIGS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = f"{protobuf.MEDIA_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def cached_bytes(api, name: str, key: str = "default/a") -> bytes | None:
    """The cached encoded object."""
    row = api.store.get("configmaps", key)
    found: bytes | None = api.representations.rows("configmaps", name).get(row)
    return found


async def watch(api, accept: str, query: str = "watch=1") -> AsyncIterator[bytes]:
    body = (await api.send("GET", f"{CONFIGS}?{query}", accept=accept)).body
    assert not isinstance(body, bytes)
    return body


CONFIG_MAPS = next(info for info in built_in().all() if info.name == "configmaps")
TABLE_ROWS = f"table {CONFIG_MAPS.serial} {CONFIG_MAPS.kind}"


@pytest.mark.parametrize(
    ("accept", "name"),
    [(protobuf.MEDIA_TYPE, "protobuf v1"), (PARTIAL, "protobuf metadata"), (TABLE, TABLE_ROWS)],
)
async def test_get_list_and_watch_share_encoded_objects(api, accept: str, name: str) -> None:
    of_list = accept.replace("as=PartialObjectMetadata", "as=PartialObjectMetadataList")
    stream = await watch(api, accept)
    await api.config("a")
    assert cached_bytes(api, name) is None
    event = await anext(stream)
    first = cached_bytes(api, name)
    assert first is not None
    answers = [await api.get(f"{CONFIGS}/a", accept=accept), await api.get(CONFIGS, accept=of_list)]
    assert cached_bytes(api, name) is first
    if name.startswith("protobuf"):
        assert all(first in body for body in (event, *(answer.body for answer in answers)))
    await api.patch(f"{CONFIGS}/a", {"data": {"more": "x"}})
    assert cached_bytes(api, name) is None
    await api.get(f"{CONFIGS}/a", accept=accept)
    assert cached_bytes(api, name) != first


@pytest.mark.parametrize("accept", [protobuf.MEDIA_TYPE, TABLE])
async def test_large_objects_are_cached(api, accept: str) -> None:
    """They are encoded in a thread, and added to the cache on the loop."""
    name = TABLE_ROWS if accept == TABLE else "protobuf v1"
    for number in range(3):
        body: dict[str, Any] = {"metadata": {"name": f"c{number}"}, "data": {"k": "x" * 300_000}}
        await api.post(CONFIGS, body)
    await api.get(CONFIGS, accept=accept)
    assert all(cached_bytes(api, name, f"default/c{number}") for number in range(3))
    await api.patch(f"{CONFIGS}/c0", {"data": {"more": "x"}})
    await api.get(f"{CONFIGS}/c0", accept=accept)
    assert cached_bytes(api, name, "default/c0")
    await api.patch(f"{CONFIGS}/c1", {"data": {"more": "x"}})
    stream = await watch(api, accept)
    await anext(stream), await anext(stream)
    assert cached_bytes(api, name, "default/c1")


async def test_get_equals_list_in_converted_version(api) -> None:
    """This holds for an object in a version that is not the stored one."""
    about = {"kind": "Pod", "name": "web", "namespace": "default"}
    await api.post("/api/v1/namespaces/default/events", {"metadata": {"name": "e"}, "involvedObject": about})
    url = "/apis/events.k8s.io/v1/namespaces/default/events"
    for _ in range(2):
        one = await api.get(f"{url}/e", accept=protobuf.MEDIA_TYPE)
        found = protobuf.decode(one.body, "", "")
        listed = protobuf.decode((await api.get(url, accept=protobuf.MEDIA_TYPE)).body, "", "")
        assert {key: found[key] for key in found if key not in ("apiVersion", "kind")} == listed["items"][0]
        assert (found["apiVersion"], found["regarding"]["name"]) == ("events.k8s.io/v1", "web")
