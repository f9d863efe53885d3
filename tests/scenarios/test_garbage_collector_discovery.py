"""The garbage collector with unknown kinds, and resources that cannot be read or watched for a while."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from controller_manager.common.api.core import CONFIG_MAPS, NAMESPACES
from controller_manager.common.api.model import Object, OwnerReference, PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base import clock
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster, Replica, builders
from controllers.garbage_collector.controller import REDISCOVERY
from tests.scenarios.garbage_collector import _json, delete, make, manage, own, owned_by, owners, there

pytestmark = pytest.mark.virtual

SECRETS = Resource("", "v1", "secrets", "Secret", True, PartialObject)


CONFLICT = Response(409, {"content-type": "application/json"}, b'{"kind":"Status","code":409,"reason":"Conflict"}')


async def test_owner_of_unknown_kind_counts_as_existing() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        gone = await make(cluster, "gone")
        stranger = OwnerReference(api_version="example.org/v1", kind="Widget", name="w", uid="1234")
        await make(cluster, "owned", stranger, owned_by(gone))
        await make(cluster, "only", stranger)
        await delete(cluster, "gone")
        await cluster.advance(300)
        assert await there(cluster) == ["only", "owned"]


async def test_controllers_share_discovery_results() -> None:
    asked: Counter[str] = Counter()

    def count(request: Request) -> None:
        asked[request.path] += 1

    async with Cluster() as cluster:
        both = "--controllers=garbage-collector-controller,resourcequota-controller"
        replica = await cluster.manage(both, "--leader-elect=false")
        await cluster.settle()
        replica.network.intercept(count)
        await cluster.sleep(20 * REDISCOVERY)
    assert 19 <= asked["/apis"] <= 21


def _given_up(replica: Replica) -> int:
    (state,) = replica.manager.state().controllers
    assert state.work is not None
    return state.work.outcomes.get("give_up", 0)


def _widget(name: str) -> OwnerReference:
    return OwnerReference(api_version="example.org/v1", kind="Widget", name=name, uid=f"uid-{name}")


async def test_new_kind_is_discovered_before_error_is_reported() -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        await cluster.advance(11)
        deployment = cluster.api.kinds.find("apps", "v1", "deployments")
        assert deployment is not None
        cluster.api.kinds.add(replace(deployment, group="example.org", kind="Widget", plural="widgets"))
        await make(cluster, "owned", _widget("gone"))
        await cluster.advance(6)
        assert await there(cluster) == [], "the new kind is known well before the next discovery is due"
        assert _given_up(replica) == 0


async def test_unknown_kind_is_reported_once_and_discovered_rarely() -> None:
    asked: list[float] = []

    def note(request: Request) -> None:
        if request.path == "/apis":
            asked.append(clock.monotonic())

    async with Cluster() as cluster:
        replica = await manage(cluster)
        await cluster.advance(60)
        replica.network.intercept(note)
        for number in range(30):
            await make(cluster, f"owned-{number}", _widget(f"w-{number // 3}"))
            await cluster.advance(1)
        await cluster.advance(20)
        given_up = _given_up(replica)
        assert 10 <= given_up <= 40, "one event per owner and dependent at most"
        assert all(later - earlier >= 5 for earlier, later in pairwise(asked))
        count = len(asked)
        await cluster.advance(300)
        assert len(asked) - count == 30, "a known unknown kind causes no early discovery"
        assert _given_up(replica) == given_up


async def test_owner_reference_with_unserved_version_works() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        owner = await _deployment(cluster, "owner")
        await make(cluster, "owned", owned_by(owner, kind="Deployment", api_version="apps/v1beta1"))
        await cluster.advance(40)
        assert await there(cluster) == ["owned"]
        await cluster.client.raw(Call("DELETE", f"{DEPLOYMENTS}/owner"))
        await cluster.advance(5)
        assert await there(cluster) == []


async def test_conflict_on_delete_is_retried() -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        owner = await make(cluster, "owner")
        await make(cluster, "owned", owned_by(owner))
        await cluster.advance(5)
        replica.network.intercept(_once("DELETE", CONFLICT))
        await delete(cluster, "owner")
        await cluster.advance(5)
        assert await there(cluster) == []


async def test_object_adopted_during_deletion_stays() -> None:
    """The object changes after the decision: the server rejects the delete, and the collector decides again."""
    async with Cluster() as cluster:
        replica = await manage(cluster)
        owner, other = await make(cluster, "owner"), await make(cluster, "other")
        await make(cluster, "owned", owned_by(owner))
        await cluster.advance(5)
        replica.network.intercept(_once("DELETE", Response(429, {"retry-after": "5"}, b"")))
        await delete(cluster, "owner")
        await cluster.sleep(2)
        await own(cluster, "owned", owned_by(owner), owned_by(other))
        await cluster.advance(20)
        assert await there(cluster) == ["other", "owned"]
        assert await owners(cluster, "owned") == ["other"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_temporarily_unserved_resource_is_still_collected(method: str) -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        owner = await make(cluster, "owner")
        await cluster.advance(5)
        lost = Response(404, {"content-type": "text/plain"}, b"404 page not found")
        replica.network.intercept(
            lambda request: lost if request.method == method and "default/" in request.path else None
        )
        await delete(cluster, "owner")
        await make(cluster, "owned", owned_by(owner, name="elsewhere"))
        await cluster.sleep(5)
        assert await there(cluster) == ["owned"]
        replica.network.intercept(None)
        await cluster.advance(20)
        assert await there(cluster) == []


@pytest.mark.parametrize("body", [b"{}", b'{"kind":"Status","status":"Success"}', b'{"metadata":{"name":"owner"}}'])
async def test_malformed_answer_does_not_prove_owner_is_deleted(body: bytes) -> None:
    async with Cluster() as cluster:
        await cluster.client.create(NAMESPACES, builders.namespace("other"))
        replica = await manage(cluster, strict=False)  # the collector cannot decide about malformed answers
        owner = await make(cluster, "owner")
        await cluster.advance(5)
        answer = Response(200, {"content-type": "application/json"}, body)
        replica.network.intercept(lambda request: answer if request.path.endswith("/owner") else None)
        await make(cluster, "owned", owned_by(owner, api_version="apps/v1", kind="Deployment"), owned_by(owner))
        await make(cluster, "doubtful", owned_by(owner, api_version="apps/v1", kind="Deployment"))
        await cluster.sleep(20)
        assert await there(cluster) == ["doubtful", "owned", "owner"]


@pytest.mark.parametrize("stays", [True, False])
async def test_owner_missing_in_list_is_read_before_collecting(stays: bool) -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        owner = await make(cluster, "owner")
        meta = {"name": "s", "ownerReferences": [_json(owned_by(owner))]}
        body = json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": meta}).encode()
        await cluster.client.raw(Call("POST", SECRETS.path("default"), body=body))
        await cluster.advance(5)
        replica.network.intercept(_restart_watches("/api/v1/configmaps"))
        replica.network.cut()
        if not stays:
            await delete(cluster, "owner")
        replica.network.heal()
        await cluster.sleep(40)
        assert await there(cluster, SECRETS) == (["s"] if stays else [])


async def test_failed_orphaning_does_not_block_other_dependents() -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        owner = await make(cluster, "owner")
        for number in range(200):
            await make(cluster, f"orphan-{number:03}", owned_by(owner))
        await cluster.advance(5)
        refusal = Response(500, {}, b"broken")
        refused = ("/orphan-000", "/orphan-001", "/orphan-042")
        replica.network.intercept(lambda request: refusal if request.path.endswith(refused) else None)
        await delete(cluster, "owner", "Orphan")
        await cluster.sleep(10)
        left = [
            obj.metadata.name for obj in (await cluster.client.list(CONFIG_MAPS)).items if obj.metadata.owner_references
        ]
        assert left == ["orphan-000", "orphan-001", "orphan-042"]
        assert "owner" in await there(cluster)
        replica.network.intercept(None)
        await cluster.advance(60)
        assert len(await there(cluster)) == 200
        assert await owners(cluster, "orphan-042") == []


@pytest.mark.virtual(seeds=5)
@pytest.mark.parametrize(("propagation", "broken", "left"), [("Orphan", 60, ["s"]), ("Foreground", 5, [])])
async def test_owner_deletion_waits_while_watches_are_broken(propagation: str, broken: float, left: list[str]) -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        owner = await make(cluster, "owner")
        await cluster.advance(5)
        replica.network.intercept(_broken("/api/v1/secrets"))
        replica.network.cut()
        replica.network.heal()
        await cluster.sleep(broken)
        meta = {"name": "s", "ownerReferences": [{**_json(owned_by(owner)), "blockOwnerDeletion": True}]}
        body = json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": meta}).encode()
        await cluster.client.raw(Call("POST", SECRETS.path("default"), body=body))
        await delete(cluster, "owner", propagation)
        await cluster.sleep(10)
        assert await there(cluster) == ["owner"]
        replica.network.intercept(None)
        await cluster.advance(100)
        assert await there(cluster) == []
        assert await there(cluster, SECRETS) == left


@pytest.mark.parametrize(("propagation", "seconds"), [("Foreground", 1), ("Orphan", 46)])
async def test_long_broken_watch_delays_only_orphaning(propagation: str, seconds: float) -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        replica.network.intercept(_broken("/api/v1/secrets"))
        owner = await make(cluster, "owner")
        await make(cluster, "held", owned_by(owner, blocks=True))
        await cluster.sleep(80)
        await delete(cluster, "owner", propagation)
        await cluster.sleep(seconds + 1)
        assert "owner" not in await there(cluster)


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
async def test_recovered_idle_watch_does_not_delay_deletion(propagation: str) -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        owner = await make(cluster, "owner")
        await make(cluster, "held", owned_by(owner, blocks=True))
        await cluster.advance(5)
        replica.network.cut()
        await cluster.sleep(2)
        replica.network.heal()
        await cluster.sleep(3.2)
        await delete(cluster, "owner", propagation)
        await cluster.sleep(3)
        assert "owner" not in await there(cluster)


async def test_unreadable_resource_does_not_block_others() -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        replica.network.intercept(_broken("/api/v1/secrets"))
        owner = await make(cluster, "owner")
        await make(cluster, "owned", owned_by(owner))
        await cluster.advance(60)
        await delete(cluster, "owner")
        await cluster.advance(5)
        assert await there(cluster) == []
        held = await make(cluster, "held")
        await make(cluster, "holder", owned_by(held, blocks=True))
        await cluster.advance(5)
        await delete(cluster, "held", "Foreground")
        await cluster.advance(60)
        assert await there(cluster) == []


async def test_failed_group_discovery_does_not_block_others() -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster)
        replica.network.intercept(_broken("/apis"))
        deployment, owner = await _deployment(cluster, "d"), await make(cluster, "owner")
        await make(cluster, "of-deployment", owned_by(deployment, kind="Deployment", api_version="apps/v1"))
        await make(cluster, "owned", owned_by(owner))
        await cluster.client.raw(Call("DELETE", f"{DEPLOYMENTS}/d"))
        await delete(cluster, "owner")
        await cluster.advance(100)
        assert await there(cluster) == ["of-deployment"]
        replica.network.intercept(None)
        await cluster.advance(60)
        assert await there(cluster) == []


DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def _deployment(cluster: Cluster, name: str) -> Object:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "example.org/app:1"}]},
    }
    tree = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }  # fmt: skip
    made = await cluster.client.raw(Call("POST", DEPLOYMENTS, body=json.dumps(tree).encode()))
    return Object.decode(made)


def _broken(path: str) -> Any:
    return lambda request: Response(500, {}, b"broken") if request.path == path else None


def _restart_watches(path: str) -> Any:
    """Return a handler that restarts watches of a resource from an empty list."""

    def intercept(request: Request) -> Response | None:
        if request.path != path:
            return None
        query = dict(request.query)
        if query.get("sendInitialEvents"):
            return Response(400, {}, b"no streams here")
        if query.get("watch"):
            return Response(410, {}, b"expired")
        return Response(200, {"content-type": "application/json"}, b'{"metadata":{"resourceVersion":"1"},"items":[]}')

    return intercept


def _once(method: str, answer: Response) -> Any:
    """Return a handler that answers the first request of a method in place of the server."""
    asked: list[str] = []

    def intercept(request: Request) -> Response | None:
        if request.method != method or asked:
            return None
        asked.append(request.path)
        return answer

    return intercept
