"""Rollouts with kubectl: status, history, undo, pause, resume and scale, in a cluster without kubelets."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import ClusterUp

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl")]

SOON = 40.0  # seconds until an expected event, on a busy machine too
SPACE, STATEFUL = "--namespace=rollout", "--namespace=stateful"
RUNNING = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
READY = ("--subresource=status", "--type=merge", "-p", json.dumps(RUNNING))


def wait_for(holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < SOON
        time.sleep(0.1)


def revisions(cluster: ClusterUp) -> list[str]:
    lines = cluster.kubectl("rollout", "history", "deployment/web", SPACE).splitlines()
    return [line.split()[0] for line in lines[2:] if line]


def images(cluster: ClusterUp) -> list[str]:
    """The image of each pod."""
    found = cluster.kubectl("get", "pods", SPACE, "-o", "jsonpath={.items[*].spec.containers[0].image}")
    return sorted(found.split())


def roll(cluster: ClusterUp, verb: str, *words: str) -> str:
    return cluster.kubectl("rollout", verb, "deployment/web", SPACE, *words)


def test_rollouts(cluster: ClusterUp) -> None:
    cluster.kubectl("create", "namespace", "rollout")
    cluster.kubectl("create", "deployment", "web", "--image=example.org/web:1", "--replicas=0", SPACE)
    assert "successfully rolled out" in roll(cluster, "status", "--timeout=40s")
    cluster.kubectl("set", "image", "deployment/web", "web=example.org/web:2", SPACE)
    wait_for(lambda: revisions(cluster) == ["1", "2"])
    roll(cluster, "undo")
    wait_for(lambda: revisions(cluster) == ["2", "3"])
    assert "example.org/web:1" in roll(cluster, "history", "--revision=3")
    cluster.kubectl("scale", "deployment/web", "--replicas=1", SPACE)
    wait_for(lambda: images(cluster) == ["example.org/web:1"])
    roll(cluster, "pause")
    cluster.kubectl("set", "image", "deployment/web", "web=example.org/web:3", SPACE)
    cluster.kubectl("scale", "deployment/web", "--replicas=2", SPACE)
    wait_for(lambda: images(cluster) == ["example.org/web:1"] * 2)
    assert revisions(cluster) == ["2", "3"]
    roll(cluster, "resume")
    wait_for(lambda: "example.org/web:3" in images(cluster))
    assert revisions(cluster) == ["2", "3", "4"]
    cluster.kubectl("scale", "deployment/web", "--replicas=0", SPACE)
    wait_for(lambda: images(cluster) == [])
    assert "successfully rolled out" in roll(cluster, "status", "--timeout=40s")


def test_rollouts_of_stateful_sets(cluster: ClusterUp, tmp_path: Path) -> None:
    labels = {"app": "db"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": "example.org/db:1"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "serviceName": "db", "template": template}
    tree = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
    (tmp_path / "db.json").write_text(json.dumps(tree))

    def sts(verb: str, *words: str) -> str:
        return cluster.kubectl("rollout", verb, "statefulset/db", STATEFUL, *words)

    def is_rolled_out(image: str, former: str = "") -> bool:
        """Set each pod running, like its node, until all are of the current template."""
        *pods, db = json.loads(cluster.kubectl("get", "pods,statefulsets", STATEFUL, "-o", "json"))["items"]
        for pod in pods:
            if pod["status"]["phase"] == "Pending":  # a conflict while it is replaced
                cluster.ask("patch", "pod", pod["metadata"]["name"], STATEFUL, *READY)
        images = [pod["spec"]["containers"][0]["image"] for pod in pods]
        status = db["status"]
        done = status.get("currentRevision") == status.get("updateRevision") != former
        return done and images == [image] * 2 and status.get("readyReplicas") == 2

    def history() -> list[str]:
        return [line.split()[0] for line in sts("history").splitlines()[2:] if line]

    cluster.kubectl("create", "namespace", "stateful")
    cluster.kubectl("create", "-f", str(tmp_path / "db.json"), STATEFUL)
    wait_for(lambda: is_rolled_out("example.org/db:1"))
    assert "2 new pods have been updated" in sts("status", "--timeout=40s")
    cluster.kubectl("set", "image", "statefulset/db", "db=example.org/db:2", STATEFUL)
    wait_for(lambda: is_rolled_out("example.org/db:2"))
    assert history() == ["1", "2"]
    sts("undo")
    wait_for(lambda: is_rolled_out("example.org/db:1"))
    assert history() == ["2", "3"]
    assert "example.org/db:1" in sts("history", "--revision=3")
    before = cluster.kubectl("get", "statefulset", "db", STATEFUL, "-o", "jsonpath={.status.updateRevision}")
    sts("restart")
    wait_for(lambda: is_rolled_out("example.org/db:1", before))
    cluster.kubectl("scale", "statefulset/db", "--replicas=0", STATEFUL)
    wait_for(lambda: cluster.kubectl("get", "pods", STATEFUL, "-o", "name") == "")
    described = cluster.kubectl("describe", "statefulset/db", STATEFUL)
    assert "SuccessfulCreate" in described
    assert "SuccessfulDelete" in described
