"""The pod garbage collector in a whole cluster, in virtual time."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import NODES, PODS, Node, Pod
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.transport.transport import whole_body
from controller_manager.testing import Cluster

pytestmark = pytest.mark.virtual

FLAGS = ("--leader-elect=false", "--controllers=podgc")
OUT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
Tree = Mapping[str, Any]


async def make_node(cluster: Cluster, name: str = "n") -> None:
    await cluster.client.create(NODES, Node.decode(msgspec.json.encode({"metadata": {"name": name}})))


async def make_pod(
    cluster: Cluster, name: str = "p", *, node: str = "n", status: Tree | None = None, hold: bool = False
) -> None:
    """Create a pod with a status; with `hold` it has a finalizer."""
    metadata = {"name": name, "namespace": "default", "finalizers": ["example.org/hold"] if hold else []}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "example.org/app"}]}
    await cluster.client.create(PODS, Pod.decode(msgspec.json.encode({"metadata": metadata, "spec": spec})))
    if status:
        await cluster.client.patch(PODS, Key("default", name), {"status": status}, subresource="status")


async def ready(cluster: Cluster, status: str) -> None:
    conditions = [{"type": "Ready", "status": status}]
    await cluster.client.patch(NODES, Key("", "n"), {"status": {"conditions": conditions}}, subresource="status")


async def pods(cluster: Cluster) -> dict[str, Pod]:
    return {pod.metadata.name: pod for pod in (await cluster.client.list(PODS)).items}


def reason(pod: Pod) -> str:
    return next((c.reason for c in pod.status.conditions if c.type == "DisruptionTarget" and c.status == "True"), "")


@pytest.mark.flag("terminated-pod-gc-threshold")
@pytest.mark.parametrize(
    ("threshold", "kept"), [(2, {"p-2", "p-3", "runs"}), (0, {f"p-{n}" for n in range(5)} | {"runs"})]
)
async def test_finished_pods_beyond_threshold_are_deleted(threshold: int, kept: set[str]) -> None:
    async with Cluster() as cluster:
        await make_node(cluster)
        await make_pod(cluster, "runs", status={"phase": "Running"})
        for number in range(4):
            await make_pod(cluster, f"p-{number}", status={"phase": ("Failed", "Succeeded")[number % 2]})
            await cluster.sleep(2)
        await make_pod(cluster, "p-4", status={"phase": "Failed", "reason": "Evicted"})
        await cluster.manage(*FLAGS, f"--terminated-pod-gc-threshold={threshold}")
        await cluster.settle()
        assert set(await pods(cluster)) == kept


async def test_each_pass_deletes_newly_finished_pods() -> None:
    async with Cluster() as cluster:
        await make_node(cluster)
        await cluster.manage(*FLAGS, "--terminated-pod-gc-threshold=1")
        await cluster.settle()
        await make_pod(cluster, "old", status={"phase": "Failed"})
        await cluster.sleep(1)
        await make_pod(cluster, "new", status={"phase": "Failed"})
        await cluster.settle()
        assert set(await pods(cluster)) == {"old", "new"}
        await cluster.advance(20)
        assert set(await pods(cluster)) == {"new"}


async def test_pods_of_deleted_node_are_deleted_after_quarantine() -> None:
    async with Cluster() as cluster:
        await make_node(cluster)
        await make_node(cluster, "other")
        await make_pod(cluster, status={"phase": "Running"})
        await make_pod(cluster, "held", status={"phase": "Running"}, hold=True)
        await make_pod(cluster, "ended", status={"phase": "Succeeded"}, hold=True)
        await make_pod(cluster, "safe", node="other")
        await make_pod(cluster, "waits", node="")
        await cluster.manage(*FLAGS)
        await cluster.advance(100)
        assert len(await pods(cluster)) == 5
        await cluster.client.delete(NODES, Key("", "n"))
        await cluster.sleep(39)
        assert {pod.metadata.deletion_timestamp for pod in (await pods(cluster)).values()} == {None}
        await cluster.advance(45)
        left = await pods(cluster)
        assert set(left) == {"safe", "waits", "held", "ended"}
        assert (left["held"].status.phase, reason(left["held"])) == ("Failed", "DeletionByPodGC")
        assert (left["ended"].status.phase, reason(left["ended"])) == ("Succeeded", "")
        assert left["held"].metadata.deletion_timestamp
        assert left["ended"].metadata.deletion_timestamp
        versions = {name: pod.metadata.resource_version for name, pod in left.items()}
        await cluster.advance(100)
        assert {name: pod.metadata.resource_version for name, pod in (await pods(cluster)).items()} == versions


async def test_node_recreated_in_time_keeps_its_pods() -> None:
    async with Cluster() as cluster:
        await make_node(cluster)
        await make_pod(cluster)
        await cluster.manage(*FLAGS)
        await cluster.settle()
        await cluster.client.delete(NODES, Key("", "n"))
        await cluster.sleep(30)
        await make_node(cluster)
        await cluster.advance(100)
        assert set(await pods(cluster)) == {"p"}


async def test_node_counts_as_deleted_only_when_server_confirms() -> None:
    """The manager's watch of nodes is broken, and it has never seen this node."""
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await cluster.settle()

        def break_watch(request: Request) -> Response | None:
            return Response(500, {}, b"deaf") if request.path == "/api/v1/nodes" else None

        replica.network.intercept(break_watch)
        replica.network.cut()
        replica.network.heal()
        await make_node(cluster)
        await make_pod(cluster)
        await cluster.advance(300)
        assert set(await pods(cluster)) == {"p"}
        await cluster.client.delete(NODES, Key("", "n"))
        await cluster.advance(100)
        assert set(await pods(cluster)) == set()


async def test_node_stays_while_server_does_not_answer() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)
        await make_pod(cluster, node="lost")
        replica.network.intercept(
            lambda request: Response(500, {}, b"broken") if request.path == "/api/v1/nodes/lost" else None
        )
        await cluster.advance(200)
        assert set(await pods(cluster)) == {"p"}
        replica.network.intercept(None)
        await cluster.advance(21)
        assert set(await pods(cluster)) == set()


async def test_terminating_pods_of_out_of_service_node_are_deleted() -> None:
    async with Cluster() as cluster:
        await make_node(cluster)
        await ready(cluster, "Unknown")
        await make_pod(cluster, "stays", status={"phase": "Running"})
        await make_pod(cluster, "goes", status={"phase": "Running"})
        await make_pod(cluster, "held", status={"phase": "Running"}, hold=True)
        for name in ("goes", "held"):
            await cluster.client.delete(PODS, Key("default", name))
        await cluster.manage(*FLAGS)
        await cluster.advance(60)
        assert set(await pods(cluster)) == {"stays", "goes", "held"}
        await cluster.client.patch(NODES, Key("", "n"), {"spec": {"taints": [OUT]}})
        await cluster.advance(21)
        left = await pods(cluster)
        assert set(left) == {"stays", "held"}
        assert (left["held"].status.phase, reason(left["held"])) == ("Failed", "")
        assert left["held"].metadata.deletion_grace_period_seconds == 0


async def test_out_of_service_taint_on_ready_node_is_ignored() -> None:
    async with Cluster() as cluster:
        await make_node(cluster)
        await ready(cluster, "True")
        await make_pod(cluster, "goes", status={"phase": "Running"})
        await cluster.client.delete(PODS, Key("default", "goes"))
        await cluster.client.patch(NODES, Key("", "n"), {"spec": {"taints": [OUT]}})
        await cluster.manage(*FLAGS)
        await cluster.advance(60)
        assert set(await pods(cluster)) == {"goes"}


async def test_unscheduled_terminating_pods_fail_and_are_deleted() -> None:
    async with Cluster() as cluster:
        await make_pod(cluster, node="", hold=True)
        await make_pod(cluster, "waits", node="")
        await cluster.client.delete(PODS, Key("default", "p"))
        await cluster.manage(*FLAGS)
        await cluster.settle()
        found = await pods(cluster)
        assert (found["p"].status.phase, reason(found["p"])) == ("Failed", "")
        assert found["waits"].status.phase == "Pending"
        await cluster.client.patch(PODS, Key("default", "p"), {"metadata": {"finalizers": None}})
        with pytest.raises(NotFound):
            await cluster.client.get(PODS, Key("default", "p"))


async def test_metrics_count_forced_deletions_and_failures() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS, "--authorization-always-allow-paths=/metrics")

        def refusing(request: Request) -> Response | None:
            return Response(403, {}, b"not now") if request.method == "DELETE" else None

        replica.network.intercept(refusing)
        await make_pod(cluster, node="lost")
        await cluster.advance(45)
        replica.network.intercept(None)
        await cluster.advance(21)
        assert set(await pods(cluster)) == set()
        page = (await whole_body(await replica.manager.pages.handle(Request("GET", "/metrics")))).decode()
        labels = '{namespace="default",reason="orphaned"}'
        assert f"pod_gc_collector_force_delete_pods_total{labels} 2\n" in page
        assert f"pod_gc_collector_force_delete_pod_errors_total{labels} 1\n" in page


async def test_pass_runs_only_after_a_period_with_changes() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*FLAGS)

        def passes() -> int:
            (state,) = replica.manager.state().controllers
            assert state.work is not None
            return sum(state.work.outcomes.values())

        await make_node(cluster)
        await cluster.advance(minutes=2)
        before = passes()
        await cluster.advance(minutes=10)
        assert passes() == before, "nothing has changed"
        await make_pod(cluster, status={"phase": "Running"})
        await cluster.advance(minutes=10)
        assert passes() == before + 1
        await cluster.client.delete(NODES, Key("", "n"))
        await cluster.advance(seconds=90)
        assert await pods(cluster) == {}
