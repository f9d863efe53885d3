"""Controllers sharded by root owner, with all objects in one namespace (virtual time).

At any time, under any faults:
1. no deployment has more pods than allowed, and no job more than wanted: no two replicas act at once;
2. a replica caches the objects of its shards, about its share of all.
While a replica that reaches the server is alive:
3. wanted pods exist at latest soon after a lease expires.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from controller_manager.common.api.apps import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from controller_manager.common.api.batch import JOBS, Job
from controller_manager.common.api.core import EVENTS, PODS, Pod
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS
from controller_manager.common.base.random import random_source
from controller_manager.framework import controller_of, controller_ref
from controller_manager.framework.cache.shard import Shard
from controller_manager.framework.controller.runner import Phase
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.pod_agent import PodAgent
from tests.scenarios.workloads import claim_template, deployment, pods, replica_set, stateful_set, template

pytestmark = pytest.mark.virtual

LEASE, RETRY = 15.0, 2.0
# An expired session, two checks of it, a list and a rollout.
SOON = LEASE + 3 * RETRY + 20.0
NAMES = [f"team-{number:02}" for number in range(1, 13)]
ROLLOUTS = ("deployment", "replicaset")


async def start(
    cluster: Cluster, replicas: int, controllers: Sequence[str] = ROLLOUTS, shards: int = 4
) -> list[Replica]:
    divided = ",".join(f"{one}={shards}" for one in controllers)
    named = ",".join(controllers)
    flags = ("--leader-elect-per-controller", f"--controllers={named}", f"--controller-shards={divided}")
    found = [await cluster.manage(*flags, may_lose_lead=True, strict=False) for _ in range(replicas)]
    await cluster.sleep(10)
    return found


def job(name: str, completions: int = 2) -> Job:
    made = template(app=name)
    made["spec"]["restartPolicy"] = "Never"
    spec = {"completions": completions, "parallelism": completions, "template": made}
    meta = {"name": name, "namespace": "default"}
    return Job.decode(msgspec.json.encode({"metadata": meta, "spec": spec}))


def pod(name: str, app: str) -> Pod:
    tree = {"metadata": {"name": name, "namespace": "default", "labels": {"app": app}}, "spec": template()["spec"]}
    return Pod.decode(msgspec.json.encode(tree))


async def pods_by_app(cluster: Cluster) -> Counter[str]:
    return Counter((one.metadata.labels or {}).get("app", "") for one in await pods(cluster))


def held(replica: Replica, resource: str) -> int:
    return sum(one.objects for one in replica.manager.state().informers if one.selection.startswith(f"{resource} "))


async def test_objects_of_one_namespace_are_divided_among_replicas() -> None:
    async with Cluster() as cluster:
        replicas = await start(cluster, 2)
        async with PodAgent(cluster):
            for name in NAMES:
                await cluster.client.create(DEPLOYMENTS, deployment(name, 2))
            await cluster.advance(10)
            assert await pods_by_app(cluster) == dict.fromkeys(NAMES, 2)
            for resource, every in (("pods", 24), ("deployments.apps", 12), ("replicasets.apps", 12)):
                shares = [held(one, resource) for one in replicas]
                assert sum(shares) == every, resource
                assert max(shares) <= 0.75 * every, resource
            runs = [one.name for one in replicas[0].manager.state().controllers if one.phase is Phase.RUNNING]
            numbers = {kind: [one[-1] for one in runs if one.startswith(kind)] for kind in ROLLOUTS}
            assert numbers["deployment"] == numbers["replicaset"]


async def test_orphan_is_adopted_by_one_owner_of_any_shard() -> None:
    async with Cluster() as cluster:
        first, second = await start(cluster, 2)
        for name in NAMES[:6]:
            await cluster.client.create(PODS, pod(f"orphan-{name}", name))
            await cluster.client.create(REPLICA_SETS, replica_set(name, 1))
        # These two deployments are in different shards, and both match the pod.
        await cluster.client.create(PODS, pod("wanted-by-two", "shared"))
        selector = {"matchLabels": {"app": "shared"}}
        names = two_of_different_shards()
        for name in names:
            wanted = replica_set(name, 1, selector=selector, template=template(app="shared"))
            await cluster.client.create(REPLICA_SETS, wanted)
        await cluster.advance(10)
        owners = {one.metadata.name: controller_of(one) for one in await pods(cluster)}
        assert all(owner is not None for owner in owners.values())
        assert {f"orphan-{name}" for name in NAMES[:6]} <= owners.keys()
        assert await pods_by_app(cluster) == {**dict.fromkeys(NAMES[:6], 1), "shared": 2}
        assert held(first, "pods") + held(second, "pods") == len(owners)


def two_of_different_shards() -> tuple[str, str]:
    shards = [Shard(index, 4, frozenset({REPLICA_SETS.name})) for index in range(4)]
    shard = next(one for one in shards if one.has(REPLICA_SETS, Key("default", "a")))
    return "a", next(name for name in NAMES[6:] if not shard.has(REPLICA_SETS, Key("default", name)))


async def test_released_pod_is_adopted_by_owner_of_other_shard() -> None:
    async with Cluster() as cluster:
        replicas = await start(cluster, 2)
        names = two_of_different_shards()
        for name in names:
            await cluster.client.create(REPLICA_SETS, replica_set(name, 1))
        await cluster.advance(5)
        moved = next(one for one in await pods(cluster) if (one.metadata.labels or {})["app"] == names[0])
        await cluster.client.patch(REPLICA_SETS, Key("default", names[1]), {"spec": {"replicas": 2}})
        await cluster.advance(5)
        extra = [one for one in await pods(cluster) if (one.metadata.labels or {})["app"] == names[1]]
        for one in extra:
            await cluster.client.delete(PODS, Key("default", one.metadata.name), grace=0)
        await cluster.client.patch(
            PODS, Key("default", moved.metadata.name), {"metadata": {"labels": {"app": names[1]}}}
        )
        await cluster.advance(5)
        assert await pods_by_app(cluster) == {names[0]: 1, names[1]: 2}
        assert sum(held(one, "pods") for one in replicas) == 3
        assert all(controller_of(one) is not None for one in await pods(cluster))


async def test_stateful_set_claims_are_sharded_by_name() -> None:
    """The claim is controlled by its pod: only its name refers to the set."""
    async with Cluster() as cluster:
        await start(cluster, 2, ("statefulset",))
        async with PodAgent(cluster):
            for name in NAMES[:4]:
                claimed = stateful_set(name, 1, volumeClaimTemplates=[claim_template()])
                await cluster.client.create(STATEFUL_SETS, claimed)
            await cluster.advance(10)
            for one in await pods(cluster):
                claim = Key("default", f"data-{one.metadata.name}")
                reference = msgspec.to_builtins(controller_ref(PODS, one))
                await cluster.client.patch(
                    PERSISTENT_VOLUME_CLAIMS, claim, {"metadata": {"ownerReferences": [reference]}}
                )
            await cluster.advance(5)
            for one in await pods(cluster):
                await cluster.client.delete(PODS, Key("default", one.metadata.name), grace=0)
            await cluster.advance(10)
            assert await pods_by_app(cluster) == dict.fromkeys(NAMES[:4], 1)
            refused = [one for one in (await cluster.client.list(EVENTS, "default")).items if "Failed" in one.reason]
            assert not refused


async def test_stateful_sets_and_jobs_are_divided_among_replicas() -> None:
    async with Cluster() as cluster:
        await start(cluster, 3, ("statefulset", "job"))
        async with PodAgent(cluster):
            for name in NAMES[:6]:
                await cluster.client.create(STATEFUL_SETS, stateful_set(f"set-{name}", 2))
                await cluster.client.create(JOBS, job(f"job-{name}"))
            await cluster.advance(20)
            found = await pods_by_app(cluster)
            assert all(found[f"set-{name}"] == 2 and found[f"job-{name}"] == 2 for name in NAMES[:6])


@pytest.mark.virtual(seeds=25)
async def test_sharded_workloads_have_exact_pods_despite_faults() -> None:
    source = Random(random_source().uniform(0.0, 1.0))
    async with Cluster() as cluster, PodAgent(cluster):
        wanted: dict[str, int] = {}
        replicas = await start(cluster, source.choice((2, 3)), shards=2)
        for _ in range(4):
            for name in source.sample(NAMES[:8], 2):
                wanted[name] = await _grow(cluster, name, wanted.get(name, 0))
            one = source.choice([one for one in replicas if not one.has_ended])
            match source.choice(("kill", "stop", "cut", "mend", "come", "nothing")):
                case "kill":
                    await one.kill()
                case "stop":
                    await one.stop()
                case "cut" | "mend":  # the longest supported suspension of a process
                    one.network.cut()
                    await cluster.sleep(source.uniform(1.0, 20.0))
                    one.network.heal()
                case "come":
                    replicas += await start(cluster, 1, shards=2)
            if all(one.has_ended for one in replicas):
                replicas += await start(cluster, 1, shards=2)
            await cluster.sleep(source.uniform(0.0, 20.0))
            found = await pods_by_app(cluster)
            assert all(found[name] <= wanted[name] for name in found), (found, wanted)
        replicas += await start(cluster, 1, shards=2)
        await cluster.sleep(SOON)
        assert await pods_by_app(cluster) == wanted
        assert len((await cluster.client.list(REPLICA_SETS, "default")).items) == len(wanted)


async def _grow(cluster: Cluster, name: str, replicas: int) -> int:
    """Create a deployment or scale it up; return its replicas."""
    if not replicas:
        await cluster.client.create(DEPLOYMENTS, deployment(name, 2))
        return 2
    await cluster.client.patch(DEPLOYMENTS, Key("default", name), {"spec": {"replicas": replicas + 1}})
    return replicas + 1
