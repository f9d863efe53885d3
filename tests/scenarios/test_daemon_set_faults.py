"""Daemon sets under faults, by seed, in virtual time.

At any time, while nodes and limits stay, and pods fail only when they are deleted:
- each node has at most one active pod; with a surge at most two, on at most as many nodes as the surge allows;
- once all pods were available, no more nodes lack an available pod than allowed.
After recovery and any changes of sets, nodes, pods and revisions:
- each fitting node has one pod, of the current template, and no other node has any;
- the status is correct, and the newest revision is that of the template;
- nothing is written any more.
"""

import contextlib
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.apps import CONTROLLER_REVISIONS, DAEMON_SETS
from controller_manager.common.api.core import NODES, PODS, Node, is_pod_ready
from controller_manager.common.api.errors import AlreadyExists, NotFound
from controller_manager.common.api.resource import Key
from controller_manager.framework.controller.history import in_order, is_equal
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import RATE, FaultInjector
from controller_manager.testing.pod_agent import PodAgent
from controllers.daemon_set.placement import Fit, node_of, placement_of
from tests.scenarios.daemon_sets import join, relabel, taint
from tests.scenarios.faults import assert_no_writes, heal_and_settle, random_choice, run_random_actions
from tests.scenarios.test_workloads_faults import ACTIONS, IMAGES
from tests.scenarios.workloads import Counted, daemon_set, label, owned, pods, set_status, template

WEB = Key("default", "web")
FLAGS = ("--leader-elect=false", "--controllers=daemonset,podgc")
PATHS = ("/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/daemonsets", "/apis/apps/v1/controllerrevisions")
NAMES = ("a", "b", "c", "d", "e")
KEYS = ("example.org/own", "node.kubernetes.io/not-ready")
# Surge, maximum unavailable, nodes that may have two pods, and nodes that may lack an available one.
LIMITS: tuple[tuple[Any, Any, int, int], ...] = (
    (0, 1, 0, 1),
    (0, 2, 0, 2),
    (0, "50%", 0, 3),
    (0, "100%", 0, 5),
    (1, 0, 1, 0),
    ("50%", 0, 3, 0),
    ("100%", 0, 5, 0),
)


def rolling(surge: Any, unavailable: Any) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


async def check(cluster: Cluster) -> None:
    """Raise AssertionError unless the invariants after recovery hold."""
    found = await cluster.client.get(DAEMON_SETS, WEB)
    placement = placement_of(found)
    nodes = (await cluster.client.list(NODES)).items
    wanted = sorted(node.metadata.name for node in nodes if placement.of(node) is Fit.RUN)
    some = [pod for pod in await owned(cluster) if placement.of(await node(cluster, node_of(pod))) is Fit.RUN]
    assert sorted(map(node_of, some)) == wanted
    assert all(map(is_pod_ready, some))
    for pod in await owned(cluster):
        assert placement.of(await node(cluster, node_of(pod))) is not Fit.NONE
    (image,) = (one["image"] for one in msgspec.json.decode(found.spec.template.spec)["containers"])
    assert all(f'"image":"{image}"'.encode() in pod.raw for pod in some)
    status = found.status
    numbers = (
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.updated_number_scheduled,
        status.number_ready,
        status.number_available,
    )
    assert numbers == (len(wanted),) * 5
    assert (status.number_unavailable, status.observed_generation) == (0, found.metadata.generation)
    revisions = (await cluster.client.list(CONTROLLER_REVISIONS, "default")).items
    mine = [one for one in revisions if one.metadata.owner_references]
    newest = in_order(mine)[-1]
    assert image.encode() in bytes(newest.data)
    assert sum(is_equal(one.data, newest.data) for one in mine) == 1  # newest revisions are merged


async def node(cluster: Cluster, name: str) -> Node:
    return await cluster.client.get(NODES, Key("", name))


@pytest.mark.virtual(seeds=200)
async def test_rolling_update_keeps_limits_despite_faults() -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=10):
        await join(cluster, *NAMES)
        surge, unavailable, twice, missing = random_choice(LIMITS)
        counted = Counted(cluster)
        replica = await cluster.manage(*FLAGS, strict=False)
        least = random_choice((0, 5))
        wanted = daemon_set(updateStrategy=rolling(surge, unavailable), minReadySeconds=least)
        await cluster.client.create(DAEMON_SETS, wanted)
        await cluster.advance(60)
        counted.ready_on_nodes.clear()
        replica.network.rate = RATE
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def use() -> None:
            change = {"spec": {"template": template(random_choice(IMAGES), app="web")}}
            await cluster.client.patch(DAEMON_SETS, WEB, change)

        await run_random_actions(cluster, (use, use, use, faults.kill, faults.cut, faults.deafen), ACTIONS)
        await heal_and_settle(cluster, faults, 2500)
        await check(cluster)
        await assert_no_writes(cluster)
        assert max(max(one.values(), default=0) for one in counted.on_nodes) <= (2 if twice else 1)
        assert max(sum(number > 1 for number in one.values()) for one in counted.on_nodes) <= twice
        assert min(map(len, counted.ready_on_nodes), default=len(NAMES)) >= len(NAMES) - missing


@pytest.mark.virtual(seeds=200)
async def test_daemon_set_converges_after_random_changes() -> None:
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=10) as agent:
        await join(cluster, *NAMES[:3])
        counted = Counted(cluster)
        replica = await cluster.manage(*FLAGS, strict=False, faults=RATE)
        await cluster.client.create(DAEMON_SETS, daemon_set())
        faults = FaultInjector(cluster, replica, FLAGS, PATHS)

        async def edit() -> None:
            made = template(random_choice(IMAGES), app="web")
            selected = {**made, "spec": {**made["spec"], "nodeSelector": random_choice(({"x": "y"}, None))}}
            strategies = [rolling(surge, unavailable) for surge, unavailable, *_ in LIMITS]
            change = random_choice(
                (
                    {"template": made},
                    {"template": selected},
                    {"updateStrategy": random_choice([*strategies, {"type": "OnDelete", "rollingUpdate": None}])},
                    {"minReadySeconds": random_choice((0, 5)), "revisionHistoryLimit": random_choice((0, 1, 10))},
                )
            )
            await cluster.client.patch(DAEMON_SETS, WEB, {"spec": change})

        async def turn_node() -> None:
            name = random_choice(NAMES)
            match random_choice(("join", "leave", "label", "taint", "clear")):
                case "join":
                    with contextlib.suppress(AlreadyExists):
                        await join(cluster, name, x="y")
                case "leave":
                    await cluster.client.delete(NODES, Key("", name))
                case "label":
                    await relabel(cluster, name, x=random_choice(("y", None)))
                case "taint":
                    await taint(cluster, name, (random_choice(KEYS), random_choice(("NoSchedule", "NoExecute"))))
                case "clear":
                    await taint(cluster, name)

        async def turn_pod() -> None:
            pod = random_choice(await pods(cluster))
            match random_choice(("drop", "label", "Failed", "Succeeded", "stop")):
                case "drop":
                    await cluster.client.delete(PODS, Key("default", pod.metadata.name))
                case "label":
                    await label(cluster, pod, app=random_choice(("web", "else")))
                case "stop":
                    agent.runs = random_choice((lambda _: True, lambda _: False))
                case phase:
                    await set_status(cluster, pod, phase=phase)

        async def spoil() -> None:
            one = random_choice((await cluster.client.list(CONTROLLER_REVISIONS, "default")).items)
            key = Key("default", one.metadata.name)
            match random_choice(("delete", "orphan", "number", "label")):
                case "delete":
                    await cluster.client.delete(CONTROLLER_REVISIONS, key)
                case "orphan":
                    await cluster.client.patch(CONTROLLER_REVISIONS, key, {"metadata": {"ownerReferences": None}})
                case "number":
                    await cluster.client.patch(CONTROLLER_REVISIONS, key, {"revision": random_choice((1, 5, 9))})
                case "label":
                    change = {"metadata": {"labels": {"controller-revision-hash": None}}}
                    await cluster.client.patch(CONTROLLER_REVISIONS, key, change)

        people = (edit, edit, turn_node, turn_node, turn_pod, spoil, faults.kill, faults.cut, faults.deafen)
        await run_random_actions(cluster, people, ACTIONS)
        agent.runs = lambda _: True
        change = {
            "updateStrategy": rolling(*random_choice(LIMITS)[:2]),
            "template": template(random_choice(IMAGES), app="web"),
        }
        await cluster.client.patch(DAEMON_SETS, WEB, {"spec": change})
        for pod in await pods(cluster):  # controllers of terminating objects act on their next change
            with contextlib.suppress(NotFound):
                await label(cluster, pod, seen="")
        await heal_and_settle(cluster, faults, 2500)
        await check(cluster)
        await assert_no_writes(cluster)
        assert max((max(one.values(), default=0) for one in counted.on_nodes), default=0) <= 3
