"""The cache of decoded objects: no difference is visible to clients."""

import json
from typing import Any

import pytest

from apiserver_stub.kinds import at_rest
from apiserver_stub.verbs import decoded_rows
from apiserver_stub.verbs.decoded_rows import DecodedRows
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import ApiError, Invalid

CONFIGS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the rows that were decoded."""
    keys: list[str] = []

    def noting(kind: Any, data: bytes) -> Any:
        tree = at_rest.read(kind, data)
        keys.append(tree["metadata"]["name"])
        return tree

    monkeypatch.setattr(decoded_rows, "read", noting)
    return keys


async def test_object_written_here_is_not_decoded_again(api: Any, decoded: list[str]) -> None:
    await api.post(CONFIGS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    for number in range(3):
        answer = (await api.patch(f"{CONFIGS}/a", {"data": {"y": str(number)}})).tree
        assert answer["data"] == {"x": "1", "y": str(number)}
        assert (await api.get(f"{CONFIGS}/a")).tree == answer
    assert decoded == []


async def test_rejected_and_dry_run_changes_leave_cache_unchanged(
    api: Any, deployment: Any, decoded: list[str]
) -> None:
    made = (await api.post(DEPLOYMENTS, deployment(replicas=2))).tree
    with pytest.raises(Invalid):
        await api.patch(f"{DEPLOYMENTS}/d", {"spec": {"replicas": -1, "paused": True}})
    await api.patch(f"{DEPLOYMENTS}/d?dryRun=All", {"spec": {"paused": True}})
    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"paused": True}}
    with pytest.raises(ApiError):
        await api.patch(f"{DEPLOYMENTS}/d", stale)
    answer = (await api.patch(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"x": "y"}}})).tree
    assert answer["spec"] == made["spec"]
    assert answer["metadata"]["generation"] == made["metadata"]["generation"]
    assert decoded == []


async def test_recreated_object_shares_nothing_with_old_one(api: Any) -> None:
    before = len(api.scope.decoded)
    await api.post(CONFIGS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    await api.delete(f"{CONFIGS}/a")
    assert len(api.scope.decoded) == before
    await api.post(CONFIGS, {"metadata": {"name": "a"}})
    answer = (await api.patch(f"{CONFIGS}/a", {"data": {"y": "2"}})).tree
    assert answer["data"] == {"y": "2"}


async def test_each_version_is_cached_separately(api: Any) -> None:
    scaler = {"spec": {"maxReplicas": 3, "scaleTargetRef": TARGET}}
    scalers = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    await api.post(scalers.format("v2"), {"metadata": {"name": "a"}, **scaler})
    change = {"spec": {"targetCPUUtilizationPercentage": 50}}
    one = (await api.patch(scalers.format("v1") + "/a", change)).tree
    assert one["spec"]["targetCPUUtilizationPercentage"] == 50
    two = (await api.patch(scalers.format("v2") + "/a", {"spec": {"maxReplicas": 4}})).tree
    assert two["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 50}


async def test_cache_is_limited_in_entries_and_object_size(api: Any) -> None:
    assert api.scope.decoded.most == 256
    for number in range(300):
        await api.post(CONFIGS, {"metadata": {"name": f"a-{number}"}})
    assert len(api.scope.decoded) == 256
    known = DecodedRows(most=2)
    kind = api.scope.kinds.find("", "v1", "configmaps")
    rows = {name: row(name) for name in "abc"} | {"large": row("large", "x" * 20_000)}
    for one in rows.values():
        known.replace(None, kind, one, json.loads(one.data))
    read = {name: known.read(kind, one) for name, one in rows.items()}
    again = {name: known.read(kind, one) for name, one in rows.items()}
    assert [name for name in rows if read[name]["data"] is again[name]["data"]] == ["b", "c"]
    read["b"]["data"] = {}
    assert known.read(kind, rows["b"]) == again["b"]


def row(name: str, text: str = "") -> Row:
    """A stored row at revision 1."""
    tree = {"metadata": {"name": name, "resourceVersion": "1"}, "data": {"x": text}}
    return Row("configmaps", name, 1, json.dumps(tree).encode())
