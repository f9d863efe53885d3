"""Virtual nodes in a whole cluster, in virtual time: scheduled pods run, finish and are removed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from controller_manager.common.api.batch import JOBS
from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.coordination import LEASES
from controller_manager.common.api.core import ENDPOINTS, EVENTS, NODES, PODS, SERVICES, Pod, is_pod_ready
from controller_manager.common.api.resource import Key
from controller_manager.common.api.wire import Response
from controller_manager.framework import STRATEGIC_MERGE_PATCH
from controller_manager.testing import Cluster
from controller_manager.testing.builders import service
from controllers.virtual_node import SPECS
from controllers.virtual_node.controller import VirtualNodeOptions
from tests.scenarios.batch import job
from tests.scenarios.workloads import daemon_set, deployment, replica_set, stateful_set

pytestmark = pytest.mark.virtual
NOTE = "virtual-node.x-k8s.io"
OWN = ("--leader-elect=false", "--controllers=virtual-node-controller,node-lifecycle-controller,ttl-controller")
QUIET = "--virtual-node-bind-address="


def pod(name: str, node: str = "virtual-node-1", annotations: Any = None, **spec: Any) -> Pod:
    container = {"name": "main", "image": "example.org/app:1"}
    meta = {"name": name, "namespace": "default", "annotations": annotations or {}}
    given = {"containers": [container], "nodeName": node, **spec}
    return Pod.decode(msgspec.json.encode({"metadata": meta, "spec": given}))


async def running(cluster: Cluster) -> list[Pod]:
    return [one for one in (await cluster.client.list(PODS, "default")).items if is_pod_ready(one)]


async def phase(cluster: Cluster, name: str) -> str:
    return (await cluster.client.get(PODS, Key("default", name))).status.phase


@pytest.mark.flag("virtual-node-capacity", "virtual-node-instant")
async def test_capacity_and_instant_flags_apply_to_virtual_nodes() -> None:
    async with Cluster() as cluster:
        await cluster.manage(
            *OWN, QUIET, "--virtual-nodes=1", "--virtual-node-capacity=cpu=3,pods=7", "--virtual-node-instant"
        )
        await cluster.client.create(PODS, pod("at-once"))
        await cluster.settle()
        node = await cluster.client.get(NODES, Key("", "virtual-node-1"))
        assert node.status.allocatable == {"cpu": "3", "pods": "7"}
        started = (await cluster.client.get(PODS, Key("default", "at-once"))).status
        assert condition_of(started.conditions, "Ready") == replace(
            condition_of(started.conditions, "Initialized"), type="Ready"
        )


@pytest.mark.flag("concurrent-virtual-node-syncs")
def test_concurrent_virtual_node_syncs_flag_sets_workers() -> None:
    assert SPECS[0].workers(VirtualNodeOptions(concurrent_virtual_node_syncs=9)) == 9


async def test_deployment_runs_on_virtual_nodes() -> None:
    async with Cluster(nodes=3) as cluster:
        await cluster.client.create(DEPLOYMENTS, deployment(replicas=4))
        await cluster.client.create(SERVICES, service("web", {"app": "web"}))
        await cluster.settle()
        found = await running(cluster)
        assert {one.spec.node_name for one in found} == {"node-1", "node-2", "node-3"}
        addresses = {one.status.pod_ip for one in found}
        assert len(addresses) == 4
        endpoints = await cluster.client.get(ENDPOINTS, Key("default", "web"))
        assert {one.ip for one in endpoints.subsets[0].addresses} == addresses
        change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.org/app:2"}]}}}}
        await cluster.client.patch(DEPLOYMENTS, Key("default", "web"), change)
        await cluster.settle()
        later = await running(cluster)
        assert len(later) == 4
        assert not {one.metadata.uid for one in later} & {one.metadata.uid for one in found}
        await cluster.client.delete(DEPLOYMENTS, Key("default", "web"), propagation="Foreground")
        await cluster.settle()
        assert (await cluster.client.list(PODS)).items == []


async def test_all_workload_kinds_run_on_added_nodes() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false")
        assert await cluster.add_nodes(2) == ["node-1", "node-2"]
        await cluster.client.create(JOBS, job("sum", completions=3, parallelism=2))
        await cluster.client.create(STATEFUL_SETS, stateful_set("db", replicas=2))
        await cluster.client.create(DAEMON_SETS, daemon_set("agent"))
        await cluster.settle()
        assert (await cluster.client.get(JOBS, Key("default", "sum"))).status.succeeded == 3
        assert (await cluster.client.get(STATEFUL_SETS, Key("default", "db"))).status.ready_replicas == 2
        assert (await cluster.client.get(DAEMON_SETS, Key("default", "agent"))).status.number_ready == 2
        await cluster.add_nodes(1)
        await cluster.settle()
        assert (await cluster.client.get(DAEMON_SETS, Key("default", "agent"))).status.number_ready == 3


@pytest.mark.flag("virtual-nodes", "virtual-node-zones")
async def test_nodes_from_flags_register_and_stay_ready() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(*OWN, QUIET, "--virtual-nodes=3", "--virtual-node-zones=a,b")
        await cluster.settle()
        nodes = {one.metadata.name: one for one in (await cluster.client.list(NODES)).items}
        assert sorted(nodes) == ["virtual-node-1", "virtual-node-2", "virtual-node-3"]
        labels = nodes["virtual-node-3"].metadata.labels or {}
        assert (labels["kubernetes.io/hostname"], labels["topology.kubernetes.io/zone"]) == ("virtual-node-3", "a")
        assert len({one.status.addresses[0].address for one in nodes.values()}) == 3
        before = await cluster.client.get(LEASES, Key("kube-node-lease", "virtual-node-1"))
        assert (before.spec.lease_duration_seconds, before.spec.holder_identity) == (40, "virtual-node-1")
        await cluster.advance(600)
        for node in (await cluster.client.list(NODES)).items:
            assert not node.spec.taints
            reported = {one.type: (one.status, one.last_transition_time) for one in node.status.conditions}
            assert reported["Ready"] == ("True", "2026-01-01T00:00:00Z")
            heartbeat = next(one.last_heartbeat_time for one in node.status.conditions if one.type == "Ready")
            assert heartbeat is not None
            assert heartbeat >= "2026-01-01T00:05:00Z"
        after = await cluster.client.get(LEASES, Key("kube-node-lease", "virtual-node-1"))
        assert (after.spec.renew_time or "") > (before.spec.renew_time or "")
        await first.stop()
        await cluster.manage(*OWN, QUIET, "--virtual-nodes=1")
        await cluster.settle()
        assert [one.metadata.name for one in (await cluster.client.list(NODES)).items] == ["virtual-node-1"]


async def test_silent_annotation_makes_node_unready_until_removed() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*OWN, QUIET, "--virtual-nodes=1", "--virtual-node-instant")
        await cluster.settle()
        silence: dict[str, Any] = {"metadata": {"annotations": {f"{NOTE}/silent": "true"}}}
        await cluster.client.patch(NODES, Key("", "virtual-node-1"), silence)
        await cluster.client.create(PODS, pod("late"))
        await cluster.advance(90)
        node = await cluster.client.get(NODES, Key("", "virtual-node-1"))
        assert next(one.status for one in node.status.conditions if one.type == "Ready") == "Unknown"
        assert await phase(cluster, "late") == "Pending"
        silence["metadata"]["annotations"][f"{NOTE}/silent"] = None
        await cluster.client.patch(NODES, Key("", "virtual-node-1"), silence)
        await cluster.advance(10)
        node = await cluster.client.get(NODES, Key("", "virtual-node-1"))
        assert next(one.status for one in node.status.conditions if one.type == "Ready") == "True"
        assert await phase(cluster, "late") == "Running"


async def test_conditions_annotation_sets_node_conditions() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*OWN, QUIET, "--virtual-nodes=1")
        await cluster.settle()
        key, note = Key("", "virtual-node-1"), f"{NOTE}/conditions"
        for annotation, expected, keys in (
            (
                "Ready=False, DiskPressure=True,Sunny=True,PIDPressure=maybe",
                ("False", "True"),
                {"not-ready", "disk-pressure"},
            ),
            (None, ("True", "False"), set()),
        ):
            await cluster.client.patch(NODES, key, {"metadata": {"annotations": {note: annotation}}})
            await cluster.settle()
            node = await cluster.client.get(NODES, key)
            reported = {one.type: one.status for one in node.status.conditions}
            assert (reported["Ready"], reported["DiskPressure"]) == expected
            assert reported["PIDPressure"] == "False"
            assert "Sunny" not in reported
            assert {taint.key.rpartition("/")[2] for taint in node.spec.taints} == keys


async def test_pod_addresses_come_from_node_range_and_are_reused() -> None:
    async with Cluster() as cluster:
        await cluster.add_nodes(1)
        await cluster.client.patch(
            NODES, Key("", "node-1"), {"spec": {"podCIDR": "10.9.0.0/29", "podCIDRs": ["10.9.0.0/29"]}}
        )
        await cluster.settle()
        for name in "abcdef":
            await cluster.client.create(PODS, pod(name, "node-1"))
        await cluster.client.create(PODS, pod("host", "node-1", hostNetwork=True))
        await cluster.settle()
        given = {one.metadata.name: one.status.pod_ip for one in await running(cluster)}
        node = await cluster.client.get(NODES, Key("", "node-1"))
        assert given.pop("host") == node.status.addresses[0].address
        assert given == {name: f"10.9.0.{number}" for name, number in zip("abcdef", range(2, 8), strict=True)}
        await cluster.client.create(PODS, pod("g", "node-1"))
        await cluster.settle()
        assert await phase(cluster, "g") == "Pending"
        await cluster.client.delete(PODS, Key("default", "c"))
        await cluster.advance(15)
        assert (await cluster.client.get(PODS, Key("default", "g"))).status.pod_ip == "10.9.0.4"


def asking(name: str, cpu: str, **spec: Any) -> Pod:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return pod(name, containers=[container], **spec)


async def test_pods_over_node_capacity_fail() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*OWN, QUIET, "--virtual-nodes=1", "--virtual-node-capacity=cpu=3,pods=3")
        await cluster.settle()
        for name in ("first", "second", "small"):
            await cluster.client.create(PODS, asking(name, "1" if name == "small" else "2"))
        await cluster.settle()
        found = {one.metadata.name: one.status for one in (await cluster.client.list(PODS, "default")).items}
        assert found.pop("small").phase == "Running"
        assert sorted((one.phase, one.reason) for one in found.values()) == [("Failed", "OutOfcpu"), ("Running", "")]
        (name,) = (name for name, status in found.items() if status.phase == "Failed")
        assert found[name].container_statuses == ()
        assert found[name].start_time is not None
        assert [one.type for one in found[name].conditions if one.type != "PodScheduled"] == []
        events = [one for one in (await cluster.client.list(EVENTS, "default")).items if one.reason.startswith("OutOf")]
        assert [(one.type, one.reason, one.involved_object.name) for one in events] == [("Warning", "OutOfcpu", name)]
        # Failed pods use no resources, and deleted pods free theirs.
        await cluster.client.create(PODS, pod("third"))
        await cluster.client.create(PODS, pod("fourth"))
        await cluster.settle()
        assert {await phase(cluster, one) for one in ("third", "fourth")} == {"Running", "Failed"}
        await cluster.client.delete(PODS, Key("default", "small"))
        await cluster.advance(5)
        await cluster.client.create(PODS, asking("large", "1"))
        await cluster.settle()
        assert await phase(cluster, "large") == "Running"


async def test_unhealthy_container_is_restarted() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*OWN, QUIET, "--virtual-nodes=1", "--virtual-node-instant")
        await cluster.settle()
        container = {"name": "main", "image": "i", "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 5}}
        await cluster.client.create(PODS, pod("web", containers=[container]))
        await cluster.advance(60)
        key, notes = Key("default", "web"), {f"{NOTE}/unhealthy-after": "1s"}
        assert (await cluster.client.get(PODS, key)).status.container_statuses[0].restart_count == 0
        await cluster.client.patch(PODS, key, {"metadata": {"annotations": notes}})
        await cluster.advance(5)
        found = await cluster.client.get(PODS, key)
        assert is_pod_ready(found)
        assert found.status.container_statuses[0].restart_count == 1
        events = [
            one for one in (await cluster.client.list(EVENTS, "default")).items if one.involved_object.name == "web"
        ]
        assert sorted((one.type, one.reason) for one in events) == [("Normal", "Killing"), ("Warning", "Unhealthy")]


async def test_replacements_of_rejected_pods_are_rate_limited() -> None:
    async with Cluster() as cluster:
        ports = [{"containerPort": 80, "hostPort": 8080}]
        of_port = {"nodeName": "virtual-node-1", "containers": [{"name": "main", "image": "i", "ports": ports}]}
        made = {"metadata": {"labels": {"app": "many"}}, "spec": of_port}
        controllers = "--controllers=virtual-node-controller,replicaset-controller"
        await cluster.manage("--leader-elect=false", controllers, QUIET, "--virtual-nodes=1", "--virtual-node-instant")
        await cluster.settle()
        await cluster.client.create(PODS, pod("first", **of_port))
        await cluster.client.create(REPLICA_SETS, replica_set("many", replicas=1, template=made))
        await cluster.sleep(30)  # no capacity is left
        refused = [
            one for one in (await cluster.client.list(PODS, "default")).items if one.status.reason == "NodePorts"
        ]
        assert 10 <= len(refused) <= 40
        await cluster.client.delete(PODS, Key("default", "first"), grace=0)
        await cluster.advance(5)
        assert any(one.metadata.name.startswith("many") for one in await running(cluster))


async def test_new_manager_knows_used_node_capacity() -> None:
    async with Cluster() as cluster:
        flags = (*OWN, QUIET, "--virtual-nodes=1", "--virtual-node-capacity=cpu=3,pods=3")
        first = await cluster.manage(*flags)
        await cluster.settle()
        await cluster.client.create(PODS, asking("first", "2"))
        await cluster.settle()
        await first.kill()
        await cluster.manage(*flags)
        await cluster.client.create(PODS, asking("second", "2"))
        await cluster.settle()
        assert (await phase(cluster, "first"), await phase(cluster, "second")) == ("Running", "Failed")


async def test_critical_pod_preempts_others_on_node() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*OWN, "--virtual-nodes=1", "--virtual-node-capacity=cpu=3,pods=3")
        await cluster.settle()
        for name in ("first", "second"):
            await cluster.client.create(PODS, asking(name, "1", priorityClassName="system-cluster-critical"))
        await cluster.client.create(PODS, asking("small", "500m"))
        await cluster.advance(10)
        await cluster.client.create(PODS, asking("critical", "1", priorityClassName="system-node-critical"))
        await cluster.advance(10)
        assert [await phase(cluster, name) for name in ("first", "second", "critical")] == ["Running"] * 3
        ended = await cluster.client.get(PODS, Key("default", "small"))
        assert (ended.status.phase, ended.status.reason) == ("Failed", "Preempting")
        found = condition_of(ended.status.conditions, "DisruptionTarget")
        assert found is not None
        assert (found.status, found.reason) == ("True", "TerminationByKubelet")
        assert ended.status.container_statuses[0].state.terminated is not None
        events = (await cluster.client.list(EVENTS, "default")).items
        assert [one.type for one in events if one.reason == "Preempting"] == ["Warning"]
        await cluster.client.create(PODS, asking("third", "4", priorityClassName="system-node-critical"))
        await cluster.advance(10)
        refused = (await cluster.client.get(PODS, Key("default", "third"))).status
        assert (refused.phase, refused.reason) == ("Failed", "UnexpectedAdmissionError")


async def test_resized_pod_uses_its_new_resources() -> None:
    async with Cluster() as cluster:
        await cluster.manage(*OWN, QUIET, "--virtual-nodes=1", "--virtual-node-capacity=cpu=3,pods=3")
        await cluster.settle()
        await cluster.client.create(PODS, asking("first", "2"))
        await cluster.settle()
        change = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
        await cluster.client.patch(PODS, Key("default", "first"), change, STRATEGIC_MERGE_PATCH, subresource="resize")
        await cluster.settle()
        await cluster.client.create(PODS, asking("second", "2"))
        await cluster.settle()
        assert (await phase(cluster, "first"), await phase(cluster, "second")) == ("Running", "Running")


async def test_stale_node_labels_do_not_reject_pod() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage(*OWN, QUIET, "--virtual-nodes=1", "--virtual-node-instant")
        await cluster.settle()
        path = "/api/v1/nodes"
        replica.network.intercept(lambda request: Response(500, {}, b"") if request.path == path else None)
        replica.network.cut()  # so that the cache of nodes becomes stale
        replica.network.heal()
        await cluster.client.patch(NODES, Key("", "virtual-node-1"), {"metadata": {"labels": {"disk": "ssd"}}})
        await cluster.client.create(PODS, pod("picky", nodeSelector={"disk": "ssd"}))
        await cluster.client.create(PODS, pod("pickier", nodeSelector={"disk": "hdd"}))
        await cluster.advance(5)
        assert await phase(cluster, "picky") == "Running"
        assert (await cluster.client.get(PODS, Key("default", "pickier"))).status.reason == "NodeAffinity"


async def test_new_manager_continues_pod_lifecycle() -> None:
    async with Cluster() as cluster:
        first = await cluster.manage(*OWN, QUIET, "--virtual-nodes=1")
        await cluster.settle()
        crashing = {f"{NOTE}/exit-code": "1", f"{NOTE}/run-for": "30s"}
        await cluster.client.create(PODS, pod("crashing", annotations=crashing))
        await cluster.advance(35)
        before = await cluster.client.get(PODS, Key("default", "crashing"))
        assert before.status.container_statuses[0].restart_count == 1
        await first.kill()
        await cluster.manage(*OWN, QUIET, "--virtual-nodes=1")
        await cluster.client.create(PODS, pod("next"))
        await cluster.advance(50)
        after = await cluster.client.get(PODS, Key("default", "crashing"))
        assert after.status.container_statuses[0].restart_count == 2
        assert after.status.pod_ip == before.status.pod_ip
        assert (await cluster.client.get(PODS, Key("default", "next"))).status.pod_ip != before.status.pod_ip


@pytest.mark.flag("virtual-node-stages")
async def test_stages_file_takes_precedence(tmp_path: Path) -> None:
    file = tmp_path / "stages.yaml"
    file.write_text("stages:\n- {name: slow, selector: app=slow, from: [waiting], to: running, delay: 60s}\n")
    async with Cluster() as cluster:
        await cluster.add_nodes(1, flags=(f"--virtual-node-stages={file}",))
        slow = replace(pod("slow", "node-1").metadata, labels={"app": "slow"})
        await cluster.client.create(PODS, replace(pod("slow", "node-1"), metadata=slow))
        await cluster.client.create(PODS, pod("usual", "node-1"))
        await cluster.advance(50)
        assert [await phase(cluster, name) for name in ("slow", "usual")] == ["Pending", "Running"]
        await cluster.advance(10)
        assert await phase(cluster, "slow") == "Running"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("stages: 3", "stages: there is no list of stages"),
        ("stages: [{name: a, from: [waiting], to: running, dely: 3s}]", "stages[0]: Object contains unknown field"),
        ("stages: [{name: a, from: [asleep], to: running}]", "stages[0]: from: asleep is none of waiting"),
        ("stages: [{name: a, from: [waiting], to: gone}]", "stages[0]: to: gone is none of"),
        ("stages: [{name: a, from: [waiting], to: running, delay: soon}]", "stages[0]: delay: "),
        ("stages: [{name: a, from: [waiting], to: running, selector: 'a=='}, {}]", "stages["),
    ],
)
async def test_invalid_stages_file_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "stages.yaml"
    file.write_text(text)
    async with Cluster() as cluster:
        with pytest.raises(Exception, match="--virtual-node-stages") as found:
            await cluster.add_nodes(1, flags=(f"--virtual-node-stages={file}",))
        assert problem in str(found.value)
