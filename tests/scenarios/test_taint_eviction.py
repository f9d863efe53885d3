"""Evictions of pods from nodes with NoExecute taints, in a whole cluster, in virtual time."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import EVENTS, NODES, PODS, Node, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.transport import whole_body
from controller_manager.testing import Cluster, Replica

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=taint-eviction-controller")
NODE, POD = Key("", "n"), Key("default", "p")
Tree = Mapping[str, Any]


def taint(key: str = "k", value: str = "", effect: str = "NoExecute") -> Tree:
    return {"key": key, "value": value, "effect": effect}


def toleration(seconds: int | None = None, key: str = "k") -> Tree:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **limit}


async def make_node(cluster: Cluster, *taints: Tree) -> None:
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": taints}}
    await cluster.client.create(NODES, Node.decode(msgspec.json.encode(tree)))


async def put_taints(cluster: Cluster, *taints: Tree) -> None:
    await cluster.client.patch(NODES, NODE, {"spec": {"taints": taints}})


async def make_pod(cluster: Cluster, *tolerations: Tree, name: str = "p", node: str = "n") -> None:
    spec = {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "main", "image": "example.org/app"}]}
    metadata = {"name": name, "namespace": "default"}
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await cluster.client.create(PODS, Pod.decode(msgspec.json.encode(tree)))


async def stays(cluster: Cluster, name: str = "p") -> bool:
    """Return whether the pod is not being deleted."""
    try:
        pod = await cluster.client.get(PODS, Key("default", name))
    except NotFound:
        return False
    return pod.metadata.deletion_timestamp is None


async def event_messages(cluster: Cluster) -> list[str]:
    events = (await cluster.client.list(EVENTS, "default")).items
    return [e.message for e in events if e.reason == "TaintManagerEviction" and e.source.component == MANAGER]


MANAGER = "taint-eviction-controller"
MARKED = "Pod default/p is deleted: a taint of its node is not tolerated, or no longer"
CANCELLED = "Pod default/p may stay: the taints of its node are tolerated again, or gone"


async def disruption(cluster: Cluster) -> Condition | None:
    pod: Pod = await cluster.client.get(PODS, POD)
    return next((c for c in pod.status.conditions if c.type == "DisruptionTarget"), None)


async def test_pod_without_toleration_is_deleted_with_reason() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster)
        await make_pod(cluster)
        await make_pod(cluster, toleration(), name="tolerant")
        await cluster.settle()
        assert await stays(cluster)
        await put_taints(cluster, taint(effect="NoSchedule"))
        await cluster.settle()
        assert await stays(cluster)
        await put_taints(cluster, taint())
        await cluster.settle()
        assert not await stays(cluster)
        assert await stays(cluster, "tolerant")
        why = await disruption(cluster)
        assert why is not None
        assert (why.status, why.reason) == ("True", "DeletionByTaintManager")
        assert why.last_transition_time
        assert why.observed_generation == 1
        assert await event_messages(cluster) == [MARKED]


async def test_pod_bound_to_tainted_node_later_is_deleted() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await cluster.advance(30)
        await make_pod(cluster)
        await make_pod(cluster, toleration(60), name="later")
        await cluster.settle()
        assert not await stays(cluster)
        await cluster.sleep(57)
        assert await stays(cluster, "later")
        await cluster.sleep(3)
        assert not await stays(cluster, "later")


async def test_shortest_toleration_decides() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint("k"), taint("l"))
        await make_pod(cluster, toleration(300), toleration(20, "l"))
        await cluster.sleep(19)
        assert await stays(cluster)
        await cluster.sleep(2)
        assert not await stays(cluster)


@pytest.mark.parametrize("seconds", [0, -30])
async def test_toleration_of_no_seconds_deletes_at_once(seconds: int) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await make_pod(cluster, toleration(seconds))
        await cluster.settle()
        assert not await stays(cluster)


async def test_removed_taint_cancels_and_new_taint_restarts_countdown() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await make_pod(cluster, toleration(60))
        await cluster.sleep(50)
        await put_taints(cluster)
        await cluster.advance(60)
        assert await stays(cluster)
        assert await event_messages(cluster) == [CANCELLED]
        assert await disruption(cluster) is None
        await put_taints(cluster, taint())
        await cluster.sleep(58)
        assert await stays(cluster)
        await cluster.sleep(3)
        assert not await stays(cluster)


async def test_removed_taint_cancels_while_tolerated_taint_stays() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint("own"), taint("k"))
        await make_pod(cluster, toleration(None, "own"), toleration(60))
        await cluster.sleep(30)
        await put_taints(cluster, taint("own"))
        await cluster.advance(60)
        assert await stays(cluster)
        assert await event_messages(cluster) == [CANCELLED]


async def test_second_taint_with_shorter_toleration_deletes_earlier() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint("k"))
        await make_pod(cluster, toleration(300), toleration(10, "l"))
        await cluster.sleep(100)
        await put_taints(cluster, taint("k"), taint("l"))
        await cluster.sleep(9)
        assert await stays(cluster)
        await cluster.sleep(2)
        assert not await stays(cluster)


async def test_not_ready_and_unreachable_share_one_countdown() -> None:
    ready, reach = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint(ready))
        await make_pod(cluster, toleration(100, ready), toleration(100, reach))
        await cluster.sleep(90)
        await put_taints(cluster, taint(reach))
        await cluster.sleep(8)
        assert await stays(cluster)
        await cluster.sleep(4)
        assert not await stays(cluster)


async def test_changed_toleration_counts_from_taint_time() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await make_pod(cluster, toleration(60))
        await make_pod(cluster, toleration(600), name="shorter")
        await make_pod(cluster, name="saved", node="n2")
        await cluster.sleep(30)
        await cluster.client.patch(PODS, POD, {"spec": {"tolerations": [toleration(120)]}})
        await cluster.client.patch(PODS, Key("default", "shorter"), {"spec": {"tolerations": [toleration(40)]}})
        await cluster.sleep(15)
        assert not await stays(cluster, "shorter")
        await cluster.sleep(70)
        assert await stays(cluster)
        await cluster.sleep(10)
        assert not await stays(cluster)


async def test_added_toleration_cancels_deletion() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await make_pod(cluster, toleration(60))
        await cluster.sleep(30)
        await cluster.client.patch(PODS, POD, {"spec": {"tolerations": [toleration()]}})
        await cluster.advance(60)
        assert await stays(cluster)
        assert await event_messages(cluster) == [CANCELLED]


async def test_new_manager_counts_from_its_start() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await make_pod(cluster, toleration(60))
        await cluster.sleep(50)
        await first.kill()
        await cluster.manage(*FLAGS)
        await cluster.sleep(58)
        assert await stays(cluster)
        await cluster.sleep(4)
        assert not await stays(cluster)


async def test_recreated_pod_has_its_own_countdown() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await make_pod(cluster, toleration(60))
        await cluster.sleep(50)
        await cluster.client.delete(PODS, POD, grace=0)
        await make_pod(cluster, toleration(60))
        await cluster.sleep(50)
        assert await stays(cluster)
        assert await event_messages(cluster) == []


async def test_deleted_node_cancels_deletion() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await make_pod(cluster, toleration(60))
        await cluster.sleep(30)
        await cluster.client.delete(NODES, NODE)
        await cluster.advance(60)
        assert await stays(cluster)


async def test_rejected_deletion_is_retried() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)

        def refusing(request: Request) -> Response | None:
            return Response(403, {}, b"not now") if request.method == "DELETE" else None

        replica.network.intercept(refusing)
        await make_node(cluster, taint())
        await make_pod(cluster)
        await cluster.sleep(20)
        assert await stays(cluster)
        assert await event_messages(cluster) == []
        replica.network.intercept(None)
        await cluster.sleep(30)
        assert not await stays(cluster)
        assert await event_messages(cluster) == [MARKED]


async def test_stale_node_cache_deletes_no_pod() -> None:
    """The taint is removed, but the manager's watch is broken: it reads the node before it deletes."""
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await make_node(cluster, taint())
        await make_pod(cluster, toleration(20))
        await cluster.sleep(5)
        await stop_watches(replica)
        await put_taints(cluster)
        await cluster.sleep(30)
        assert await stays(cluster)


async def stop_watches(replica: Replica) -> None:
    """Stop all watches of this manager."""
    replica.network.intercept(
        lambda request: Response(500, {}, b"deaf") if ("watch", "true") in request.query else None
    )
    replica.network.cut()
    replica.network.heal()


@pytest.mark.parametrize(
    ("gates", "kept"), [((), False), (("--feature-gates=TaintTolerationComparisonOperators=true",), True)]
)
async def test_numeric_tolerations_need_feature_gate(gates: tuple[str, ...], kept: bool) -> None:
    async with Cluster(["--feature-gates=TaintTolerationComparisonOperators=true"]) as cluster:
        await cluster.manage(*FLAGS, *gates)
        await make_node(cluster, taint("sla", "950"))
        await make_pod(cluster, {"key": "sla", "operator": "Gt", "value": "900", "effect": "NoExecute"})
        await cluster.settle()
        assert await stays(cluster) is kept


async def test_metrics_count_deletions() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS, "--authorization-always-allow-paths=/metrics")
        await make_node(cluster, taint())
        await make_pod(cluster)
        await make_pod(cluster, toleration(30), name="q")
        await cluster.advance(40)
        answer = await replica.manager.pages.handle(Request("GET", "/metrics"))
        page = (await whole_body(answer)).decode()
        assert "taint_eviction_controller_pod_deletions_total 2\n" in page
        assert 'taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.1"} 2\n' in page
