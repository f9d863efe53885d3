"""Quotas, enforced by a server."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.plugins.quotas import ResourceQuotas
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.serving.authentication import User
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.running_server import Started

T = TypeVar("T")
NAMESPACE = "/api/v1/namespaces/default"
QUOTAS = f"{NAMESPACE}/resourcequotas"
CONFIGS = f"{NAMESPACE}/configmaps"


async def quota(api: ApiClient, hard: dict[str, str], used: dict[str, str], **spec: Any) -> None:
    """A quota whose status the controller has already set."""
    made = {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    assert (await api.post(QUOTAS, made)).status == 201
    status = {"status": {"hard": hard, "used": used}}
    assert (await api.patch(f"{QUOTAS}/q/status", status)).status == 200


async def used_quota(api: ApiClient) -> dict[str, str]:
    found: dict[str, str] = (await api.get(f"{QUOTAS}/q")).tree["status"]["used"]
    return found


async def test_creates_are_counted_until_quota_is_exhausted(started: Started) -> None:
    async with started() as api:
        await quota(api, {"count/configmaps": "2", "secrets": "1"}, {"count/configmaps": "0", "secrets": "0"})
        await api.config("one")
        assert (await api.post(f"{CONFIGS}?dryRun=All", {"metadata": {"name": "dry"}})).status == 201
        assert await used_quota(api) == {"count/configmaps": "1", "secrets": "0"}
        await api.config("two")
        refused = await api.post(CONFIGS, {"metadata": {"name": "three"}})
        assert (refused.status, refused.tree["reason"]) == (403, "Forbidden")
        why = "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2"
        assert why in refused.tree["message"]
        assert (await api.post(CONFIGS, {"metadata": {"name": "two"}})).status in (403, 409)
        assert await used_quota(api) == {"count/configmaps": "2", "secrets": "0"}


async def test_failed_create_of_existing_name_is_not_counted(started: Started) -> None:
    async with started() as api:
        await quota(api, {"count/configmaps": "5"}, {"count/configmaps": "0"})
        await api.config("one")
        assert (await api.post(CONFIGS, {"metadata": {"name": "one"}})).status == 409
        assert await used_quota(api) == {"count/configmaps": "1"}


async def test_quota_without_status_rejects_requests(started: Started) -> None:
    async with started() as api:
        await quota(api, {"count/configmaps": "5"}, {})
        refused = await api.post(CONFIGS, {"metadata": {"name": "one"}})
        assert refused.status == 403
        assert "status unknown for quota: q, resources: count/configmaps" in refused.tree["message"]
        assert (await api.post(f"{NAMESPACE}/secrets", {"metadata": {"name": "one"}})).status == 201


async def test_recount_includes_write_waiting_for_commit(started: Started) -> None:
    async with started() as api:
        made = {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}}
        assert (await api.post(QUOTAS, made)).status == 201
        kind = next(kind for kind in built_in().all() if kind.storage == "configmaps")
        config = {"metadata": {"name": "one", "namespace": "default"}}
        attributes = Attributes("create", kind, "default", "one", "", config, None, User("admin"))
        (amend,) = await ResourceQuotas(api.server.store).charge(attributes)
        quota = (await api.get(f"{QUOTAS}/q")).tree
        assert json.loads(amend.change(json.dumps(quota).encode())).get("status") == {}
        counted = {**quota, "status": {"hard": {"configmaps": "1"}, "used": {"configmaps": "0"}}}
        assert json.loads(amend.change(json.dumps(counted).encode()))["status"]["used"] == {"configmaps": "1"}
        full = {**quota, "status": {"hard": {"configmaps": "1"}, "used": {"configmaps": "1"}}}
        with pytest.raises(Forbidden, match="exceeded quota: q, requested: configmaps=1"):
            amend.change(json.dumps(full).encode())


async def test_concurrent_writes_do_not_exceed_quota(started: Started) -> None:
    async with started() as api:
        await quota(api, {"count/configmaps": "3"}, {"count/configmaps": "0"})
        answers = [api.post(CONFIGS, {"metadata": {"name": f"c-{n}"}}) for n in range(8)]
        statuses = sorted([answer.status for answer in await asyncio.gather(*answers)])
        assert statuses == [201] * 3 + [403] * 5
        assert await used_quota(api) == {"count/configmaps": "3"}


async def test_service_type_change_is_charged_the_difference(started: Started) -> None:
    async with started() as api:
        await quota(api, {"services": "5", "services.nodeports": "1"}, {"services": "0", "services.nodeports": "0"})
        for name in ("a", "b"):
            service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
            assert (await api.post(f"{NAMESPACE}/services", service)).status == 201
        change = {"spec": {"type": "NodePort"}}
        assert (await api.patch(f"{NAMESPACE}/services/a", change)).status == 200
        assert (await api.patch(f"{NAMESPACE}/services/b", change)).status == 403
        assert await used_quota(api) == {"services": "2", "services.nodeports": "1"}


async def test_rejection_by_quota_includes_warnings(started: Started) -> None:
    async with started() as api:
        await quota(api, {"pods": "0"}, {"pods": "0"})
        container = {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [container], "colour": "red"}}
        refused = await api.post(f"{NAMESPACE}/pods?fieldValidation=Warn", pod)
        assert refused.status == 403
        assert 'unknown field \\"spec.colour\\"' in refused.headers["warning"]
        assert 'spec.containers[0].env[1]: hides previous definition of \\"A\\"' in refused.headers["warning"]


@pytest.mark.parametrize(("containers", "aside"), [(10, 0), (300, 2)])
async def test_pod_with_many_containers_is_counted_in_a_thread(started: Started, containers: int, aside: int) -> None:
    """Evaluation and counting of the pod run in the thread, not on the event loop."""
    steps: list[object] = []

    async def run(step: Callable[[], T]) -> T:
        steps.append(step)
        return step()

    async with started() as api:
        await quota(api, {"pods": "5", "requests.cpu": "1"}, {"pods": "0", "requests.cpu": "0"})
        kind = next(kind for kind in built_in().all() if kind.storage == "pods")
        asked = [{"name": f"c{n}", "resources": {"requests": {"cpu": "1m"}}} for n in range(containers)]
        pod = {"metadata": {"name": "one", "namespace": "default"}, "spec": {"containers": asked}}
        attributes = Attributes("create", kind, "default", "one", "", pod, None, User("admin"))
        quotas = ResourceQuotas(api.server.store, run=run)
        await quotas.validate(attributes)
        (amend,) = await quotas.charge(attributes)
        found = json.loads(amend.change(json.dumps((await api.get(f"{QUOTAS}/q")).tree).encode()))
        assert found["status"]["used"] == {"pods": "1", "requests.cpu": f"{containers}m"}
        assert len(steps) == aside
