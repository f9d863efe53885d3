"""Quotas on a whole server: as recorded from Kubernetes 1.36, and with concurrent writers and servers."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller_manager.common.base.random import random_source
from tests.apiserver_stub.running_server import TwoServers, two_servers
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome

LINES = (Path(__file__).parent / "data" / "resource_quotas.jsonl").read_text().splitlines()
ROWS = [json.loads(line.replace("${RUN}", "x1")) for line in LINES]
NAMESPACE = "/api/v1/namespaces/default"
QUOTA = f"{NAMESPACE}/resourcequotas/q"
LIMITED = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "ResourceQuotaConfiguration",
    "limitedResources": [
        {
            "resource": "pods",
            "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}],
        },
        {"resource": "persistentvolumeclaims", "matchContains": [".storageclass.storage.k8s.io/requests.storage"]},
        {"resource": "deployments", "apiGroup": "apps", "matchContains": ["count/"]},
    ],
}


@pytest.mark.parametrize("limited", [False, True], ids=["", "limited"])
async def test_answers_match_kube_apiserver(started: Any, tmp_path: Path, limited: bool) -> None:
    """Statuses are written by hand: no controller counts."""
    file = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ResourceQuota", "configuration": LIMITED}] if limited else [],
    }
    (tmp_path / "admission.yaml").write_text(json.dumps(file))
    flags = ("--disable-admission-plugins=ServiceAccount", f"--admission-control-config-file={tmp_path}/admission.yaml")
    async with started(*flags) as api:
        for row in ROWS:
            if row.get("limited", False) is not limited:
                continue
            for number, step in enumerate(row["steps"]):
                media = {"content_type": step["content_type"]} if "content_type" in step else {}
                query = f"?{step['query']}" if "query" in step else ""
                answer = await api.send(step["verb"], step["path"] + query, step.get("body"), **media)
                found = outcome(step, answer.status, json.loads(answer.body), [])
                assert not difference(step, found), (row["what"], number)
                if "status" in step:
                    assert found["status"]["message"] == step["status"]["message"]


async def create_quota(api: Any, hard: dict[str, str], used: dict[str, str] | None = None) -> None:
    """Create a quota with a counted status."""
    await api.post(f"{NAMESPACE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    status = {"status": {"hard": hard, "used": used or dict.fromkeys(hard, "0")}}
    assert (await api.patch(f"{QUOTA}/status", status)).status == 200


async def used_quota(api: Any) -> dict[str, str]:
    found: dict[str, str] = (await api.get(QUOTA)).tree["status"]["used"]
    return found


@pytest.fixture
async def two() -> AsyncIterator[TwoServers]:
    async with two_servers() as found:
        yield found


async def test_stale_first_count_is_rejected(started: Any) -> None:
    async with started() as api:
        asked = {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}}
        counted = (await api.post(f"{NAMESPACE}/resourcequotas", asked)).tree
        counted["status"] = {"hard": {"configmaps": "1"}, "used": {"configmaps": "0"}}
        await api.post(f"{NAMESPACE}/secrets", {"metadata": {"name": "not-counted"}})
        assert (await api.get(QUOTA)).tree["metadata"]["resourceVersion"] == counted["metadata"]["resourceVersion"]
        await api.post(f"{NAMESPACE}/configmaps", config(1))
        assert (await api.put(f"{QUOTA}/status", counted)).status == 409
        assert (await api.get(QUOTA)).tree["status"] == {}


def config(number: int) -> dict[str, Any]:
    return {"metadata": {"name": f"c-{number}"}}


@pytest.mark.virtual(seeds=20)
async def test_concurrent_writers_do_not_exceed_quota(two: TwoServers) -> None:
    """Names are used twice, and one server sees the other's writes late: failed writes are not counted."""
    one, other, late = two
    hard = int(random_source().uniform(5, 60))
    await create_quota(one, {"configmaps": str(hard), "count/configmaps": "100"})
    answers: Counter[int] = Counter()

    async def create(number: int) -> None:
        await asyncio.sleep(random_source().uniform(0, 0.1))
        api = one if random_source().uniform(0, 1) < 0.5 else other
        code = (await api.post(f"{NAMESPACE}/configmaps", config(number % 48))).status
        answers[code] += 1

    async def lag() -> None:
        while True:
            late.held = True
            await asyncio.sleep(random_source().uniform(0, 0.05))
            late.release()
            await asyncio.sleep(random_source().uniform(0, 0.05))

    async with asyncio.TaskGroup() as group:
        lagging = group.create_task(lag())
        async with asyncio.TaskGroup() as writers:
            for number in range(64):
                writers.create_task(create(number))
        lagging.cancel()
    late.release()
    there = len((await one.get(f"{NAMESPACE}/configmaps")).tree["items"])
    assert await used_quota(one) == {"configmaps": str(there), "count/configmaps": str(there)}
    assert answers.keys() <= {201, 403, 409}
    assert answers[201] == there == min(hard, 48)
