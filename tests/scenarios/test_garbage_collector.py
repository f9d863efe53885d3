"""The garbage collector in a whole cluster, in virtual time."""

import pytest

from controller_manager.common.api.core import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, ConfigMap, Node
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.framework import Informers
from controller_manager.testing import Cluster, builders
from controllers.garbage_collector import SPECS
from controllers.garbage_collector.graph_builder import Monitors
from tests.scenarios.garbage_collector import HOLD, _json, delete, get, make, manage, own, owned_by, owners, there

pytestmark = pytest.mark.virtual


async def test_dependents_are_deleted_recursively_with_their_owner() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        top = await make(cluster, "top")
        middle = await make(cluster, "middle", owned_by(top))
        await make(cluster, "low", owned_by(middle))
        await cluster.client.create(PODS, builders.pod("p", ownerReferences=[_json(owned_by(middle))]))
        await make(cluster, "other")
        await cluster.advance(5)
        assert await there(cluster) == ["low", "middle", "other", "top"]
        await delete(cluster, "top")
        await cluster.advance(40)
        assert await there(cluster) == ["other"]
        assert await there(cluster, PODS) == []


async def test_dependent_created_after_owner_deletion_is_deleted() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        owner = await make(cluster, "owner")
        await cluster.advance(5)
        await delete(cluster, "owner")
        await cluster.advance(5)
        await make(cluster, "late", owned_by(owner))
        await cluster.advance(5)
        assert await there(cluster) == []


async def test_orphans_from_before_the_start_are_deleted() -> None:
    async with Cluster() as cluster:
        owner, kept = await make(cluster, "owner"), await make(cluster, "kept")
        await delete(cluster, "owner")
        for number in range(5):
            await make(cluster, f"left-{number}", owned_by(owner))
        await make(cluster, "owned", owned_by(kept))
        await manage(cluster)
        await cluster.advance(5)
        assert await there(cluster) == ["kept", "owned"]


async def test_recreated_owner_with_new_uid_does_not_own() -> None:
    async with Cluster() as cluster:
        owner = await make(cluster, "owner")
        await make(cluster, "owned", owned_by(owner))
        await delete(cluster, "owner")
        await make(cluster, "owner")
        await manage(cluster)
        await cluster.advance(5)
        assert await there(cluster) == ["owner"]


async def test_reference_to_missing_owner_is_removed_beside_live_owner() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        first, second = await make(cluster, "first"), await make(cluster, "second")
        await make(cluster, "owned", owned_by(first), owned_by(second))
        await cluster.advance(5)
        await delete(cluster, "first")
        await cluster.advance(5)
        assert await owners(cluster, "owned") == ["second"]
        await delete(cluster, "second")
        await cluster.advance(5)
        assert await there(cluster) == []


async def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        owner = await make(cluster, "owner")
        await make(cluster, "blocking", owned_by(owner, blocks=True), hold=True)
        await make(cluster, "other", owned_by(owner), hold=True)
        await make(cluster, "free", owned_by(owner, blocks=True))
        await cluster.advance(5)
        await delete(cluster, "owner", "Foreground")
        await cluster.advance(40)
        assert await there(cluster) == ["blocking", "other", "owner"]
        assert (await get(cluster, "other")).metadata.deletion_timestamp is not None
        await cluster.client.patch(CONFIG_MAPS, Key("default", "blocking"), {"metadata": {"finalizers": None}})
        await cluster.advance(5)
        assert await there(cluster) == ["other"]


async def test_foreground_deletion_deletes_deepest_dependents_first() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        top = await make(cluster, "top")
        middle = await make(cluster, "middle", owned_by(top, blocks=True))
        await make(cluster, "low", owned_by(middle, blocks=True), hold=True)
        await cluster.advance(5)
        await delete(cluster, "top", "Foreground")
        await cluster.advance(5)
        assert await there(cluster) == ["low", "middle", "top"]
        assert (await get(cluster, "middle")).metadata.finalizers == ("foregroundDeletion",)
        await cluster.client.patch(CONFIG_MAPS, Key("default", "low"), {"metadata": {"finalizers": None}})
        await cluster.advance(5)
        assert await there(cluster) == []


async def test_shared_dependent_does_not_block_foreground_deletion() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        first, second = await make(cluster, "first"), await make(cluster, "second")
        await make(cluster, "owned", owned_by(first, blocks=True), owned_by(second))
        await cluster.advance(5)
        await delete(cluster, "first", "Foreground")
        await cluster.advance(5)
        assert await there(cluster) == ["owned", "second"]
        assert await owners(cluster, "owned") == ["second"]


async def test_dependent_that_stops_blocking_releases_its_owner() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        owner = await make(cluster, "owner")
        await make(cluster, "owned", owned_by(owner, blocks=True), hold=True)
        await cluster.advance(5)
        await delete(cluster, "owner", "Foreground")
        await cluster.advance(5)
        assert await there(cluster) == ["owned", "owner"]
        await own(cluster, "owned", owned_by(owner))
        await cluster.advance(5)
        assert await there(cluster) == ["owned"]


@pytest.mark.parametrize("length", [1, 2, 3])
async def test_owner_cycle_is_deleted_in_foreground(length: int) -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        circle = [await make(cluster, f"c-{number}") for number in range(length)]
        for number in range(length):
            await own(cluster, f"c-{number}", owned_by(circle[number - 1], blocks=True))
        await cluster.advance(5)
        await delete(cluster, "c-0", "Foreground")
        await cluster.advance(5)
        assert await there(cluster) == []


async def test_owner_cycle_deleted_at_once_is_collected() -> None:
    async with Cluster() as cluster:
        circle = [await make(cluster, f"c-{number}") for number in range(3)]
        for number in range(3):
            await own(cluster, f"c-{number}", owned_by(circle[number - 1], blocks=True))
            await delete(cluster, f"c-{number}", "Foreground")
        await manage(cluster)
        await cluster.advance(5)
        assert await there(cluster) == []


async def test_orphaned_dependents_stay_without_owner_reference() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        owner, other = await make(cluster, "owner"), await make(cluster, "other")
        for number in range(30):
            await make(cluster, f"orphan-{number}", owned_by(owner, blocks=True))
        await make(cluster, "shared", owned_by(other), owned_by(owner))
        await cluster.advance(5)
        await delete(cluster, "owner", "Orphan")
        await cluster.advance(40)
        assert len(await there(cluster)) == 32
        assert await owners(cluster, "orphan-7") == []
        assert await owners(cluster, "shared") == ["other"]


async def test_collected_object_with_orphan_finalizer_keeps_dependents() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        top = await make(cluster, "top")
        middle = await make(cluster, "middle", owned_by(top))
        await make(cluster, "orphan", owned_by(middle))
        await cluster.client.patch(CONFIG_MAPS, Key("default", "middle"), {"metadata": {"finalizers": ["orphan"]}})
        await cluster.advance(5)
        await delete(cluster, "top")
        await cluster.advance(5)
        assert await there(cluster) == ["orphan"]
        assert await owners(cluster, "orphan") == []


async def test_owner_in_other_namespace_is_invalid_and_reported() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        await cluster.client.create(NAMESPACES, builders.namespace("other"))
        owner = await make(cluster, "owner", namespace="other")
        await make(cluster, "good", owned_by(owner), namespace="other")
        await cluster.advance(5)
        await make(cluster, "misplaced", owned_by(owner))
        await cluster.advance(5)
        assert await there(cluster) == ["good", "owner"]
        [event] = (await cluster.client.list(EVENTS)).items
        assert (event.type, event.reason) == ("Warning", "OwnerRefInvalidNamespace")
        assert (event.involved_object.kind, event.involved_object.name) == ("ConfigMap", "misplaced")
        assert event.source.component == "garbage-collector-controller"


async def test_invalid_owner_references_do_not_affect_valid_ones() -> None:
    async with Cluster() as cluster:
        await cluster.client.create(NAMESPACES, builders.namespace("other"))
        owner = await make(cluster, "owner", namespace="other")
        await make(cluster, "misplaced", owned_by(owner))
        await make(cluster, "misnamed", owned_by(owner, name="else"), namespace="other")
        await make(cluster, "miskinded", owned_by(owner, kind="Secret"), namespace="other")
        await make(cluster, "good", owned_by(owner), namespace="other")
        await manage(cluster)
        await cluster.advance(40)
        assert await there(cluster) == ["good", "owner"]


async def test_cluster_scoped_owner_owns_namespaced_objects() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        node = await cluster.client.create(NODES, Node(metadata=ObjectMeta(name="node")))
        await make(cluster, "owned", owned_by(node, kind="Node"))
        await cluster.advance(5)
        assert await there(cluster) == ["owned"]
        await cluster.client.delete(NODES, Key("", "node"))
        await cluster.advance(5)
        assert await there(cluster) == []


async def test_cluster_scoped_object_with_namespaced_owner_stays() -> None:
    async with Cluster() as cluster:
        await manage(cluster)
        owner = await make(cluster, "owner")
        meta = ObjectMeta(name="node", owner_references=(owned_by(owner),))
        await cluster.client.create(NODES, Node(metadata=meta))
        await delete(cluster, "owner")
        await cluster.advance(40)
        assert await there(cluster, NODES) == ["node"]


@pytest.mark.flag("enable-garbage-collector")
async def test_disabled_garbage_collector_does_nothing() -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster, "--enable-garbage-collector=false")
        owner = await make(cluster, "owner")
        await make(cluster, "owned", owned_by(owner))
        await delete(cluster, "owner")
        await cluster.advance(60)
        assert await there(cluster) == ["owned"]
        assert replica.manager.state().informers == ()


@pytest.mark.flag("concurrent-gc-syncs")
@pytest.mark.parametrize("syncs", [1, 4])
async def test_concurrent_gc_syncs_flag_sets_workers(syncs: int) -> None:
    async with Cluster() as cluster:
        replica = await manage(cluster, f"--concurrent-gc-syncs={syncs}")
        owner = await make(cluster, "owner")
        for number in range(8):
            await make(cluster, f"owned-{number}", owned_by(owner))
        await cluster.advance(5)
        asked: list[str] = []

        def refuse(request: Request) -> Response | None:
            if request.method == "DELETE":
                asked.append(request.path)
                return Response(429, {"retry-after": "10"}, b"")
            return None

        replica.network.intercept(refuse)
        await delete(cluster, "owner")
        await cluster.sleep(5)
        assert len(asked) == syncs


async def test_only_the_leader_watches() -> None:
    async with Cluster() as cluster:
        replicas = [await cluster.manage(specs=SPECS) for _ in range(2)]
        await cluster.advance(40)
        watching = sorted(len(replica.manager.state().informers) for replica in replicas)
        assert watching[0] == 0
        assert watching[1] > 20


async def test_cached_metadata_has_no_annotations() -> None:
    async with Cluster() as cluster:
        meta = ObjectMeta(namespace="default", name="a", annotations={"last-applied": "x" * 1000}, finalizers=(HOLD,))
        await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta))
        runtime = Runtime("test")
        informers = Informers(cluster.client, runtime)
        monitors = Monitors(informers, runtime.log("test"))
        async with Tasks() as tasks:
            tasks.start(informers.run(), name="informers")
            await monitors.refresh(0.0)
            await monitors.synced()
        [seen] = [one.meta for one in monitors.seen if one.identity.name == "a" and one.meta is not None]
        assert (seen.annotations, seen.finalizers) == (None, (HOLD,))
