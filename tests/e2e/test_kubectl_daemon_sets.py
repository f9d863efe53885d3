"""Daemon sets with kubectl: rollouts, and the drain of a node; this test plays the kubelets."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import pytest

from tests.e2e.conftest import ClusterUp

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl")]

SOON = 40.0  # seconds until an expected event, on a busy machine too
SPACE = "--namespace=daemons"
NODES = ("daemon-1", "daemon-2")
MANIFEST = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "agent", "annotations": {"kubernetes.io/change-cause": "made"}},
    "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {
                "nodeSelector": {"for": "agents"},
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "agent", "image": "example.org/agent:1", "args": ["a < b && c"]}],
            },
        },
    },
}


class Kubelets:
    """The nodes of this test: they run their pods."""

    def __init__(self, cluster: ClusterUp) -> None:
        self._cluster = cluster
        self._over = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.3):
            with suppress(AssertionError):  # deleted meanwhile
                for pod in json.loads(self._cluster.kubectl("get", "pods", SPACE, "-o", "json"))["items"]:
                    self._look(pod)

    def _look(self, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        if "nodeName" not in spec:
            required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            (node,) = required["nodeSelectorTerms"][0]["matchFields"][0]["values"]
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name},
                "target": {"kind": "Node", "name": node},
            }
            path = f"/api/v1/namespaces/daemons/pods/{name}/binding"
            self._cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
        elif pod["status"].get("phase") == "Pending":
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            change = ("--subresource=status", "-p", json.dumps({"status": ready}))
            self._cluster.kubectl("patch", "pod", name, SPACE, *change)


@pytest.fixture
def kubelets(cluster: ClusterUp) -> Iterator[Kubelets]:
    cluster.kubectl("create", "namespace", "daemons")
    for name in NODES:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"for": "agents"}}}
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(node))
        cluster.kubectl("patch", "node", name, "--type=merge", "-p", '{"spec":{"taints":null}}')
    found = Kubelets(cluster)
    yield found
    found.stop()
    cluster.kubectl("delete", "node", *NODES)
    cluster.kubectl("delete", "namespace", "daemons", "--wait=false")


def wait_for(holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < SOON
        time.sleep(0.1)


def roll(cluster: ClusterUp, verb: str, *words: str) -> str:
    return cluster.kubectl("rollout", verb, "daemonset/agent", SPACE, *words)


def revisions(cluster: ClusterUp) -> list[list[str]]:
    """The number and the cause of each revision."""
    return [line.split() for line in roll(cluster, "history").splitlines()[2:] if line]


def images(cluster: ClusterUp) -> list[str]:
    found = cluster.kubectl("get", "pods", SPACE, "-o", "jsonpath={.items[*].spec.containers[0].image}")
    return sorted(found.split())


def test_rollouts_and_drain(cluster: ClusterUp, kubelets: Kubelets) -> None:
    cluster.kubectl("create", SPACE, "-f", "-", stdin=json.dumps(MANIFEST))
    assert "successfully rolled out" in roll(cluster, "status", "--timeout=40s")
    assert images(cluster) == ["example.org/agent:1"] * 2

    cluster.kubectl("set", "image", "daemonset/agent", "agent=example.org/agent:2", SPACE)
    assert "successfully rolled out" in roll(cluster, "status", "--timeout=40s")
    assert images(cluster) == ["example.org/agent:2"] * 2
    assert revisions(cluster) == [["1", "made"], ["2", "made"]]
    assert "example.org/agent:1" in roll(cluster, "history", "--revision=1")

    roll(cluster, "undo")
    assert "successfully rolled out" in roll(cluster, "status", "--timeout=40s")
    assert images(cluster) == ["example.org/agent:1"] * 2
    assert revisions(cluster) == [["2", "made"], ["3", "made"]]

    roll(cluster, "restart")
    assert "successfully rolled out" in roll(cluster, "status", "--timeout=40s")
    assert [number for number, _ in revisions(cluster)] == ["2", "3", "4"]
    shown = cluster.kubectl("get", "daemonset", "agent", SPACE, "--no-headers").split()
    assert shown[:6] == ["agent", "2", "2", "2", "2", "2"]

    # A pod of a daemon set blocks a drain, unless it is ignored; then it stays.
    refused = cluster.ask("drain", NODES[0], "--timeout=10s")
    assert (refused.returncode, "cannot delete DaemonSet-managed Pods" in refused.stderr) == (1, True)
    drained = cluster.kubectl("drain", NODES[0], "--ignore-daemonsets", "--timeout=20s")
    assert drained.splitlines()[-1] == f"node/{NODES[0]} drained"
    assert len(images(cluster)) == 2
    cluster.kubectl("label", "node", NODES[1], "for-")
    wait_for(lambda: len(images(cluster)) == 1)
    cluster.kubectl("delete", "daemonset", "agent", SPACE)
    wait_for(lambda: images(cluster) == [])
