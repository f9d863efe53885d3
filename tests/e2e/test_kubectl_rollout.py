"""Rollouts by kubectl: status, history, undo, pause, resume and scale, of a cluster whose pods nobody runs."""

import time
from collections.abc import Callable

import pytest

from tests.e2e.conftest import Up

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl")]

SOON = 40.0  # seconds in which what is about to happen does, on a busy machine too
SPACE = "--namespace=rollout"


def wait_for(holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < SOON
        time.sleep(0.1)


def revisions(cluster: Up) -> list[str]:
    lines = cluster.kubectl("rollout", "history", "deployment/web", SPACE).splitlines()
    return [line.split()[0] for line in lines[2:] if line]


def images(cluster: Up) -> list[str]:
    """The image of each pod."""
    found = cluster.kubectl("get", "pods", SPACE, "-o", "jsonpath={.items[*].spec.containers[0].image}")
    return sorted(found.split())


def roll(cluster: Up, verb: str, *words: str) -> str:
    return cluster.kubectl("rollout", verb, "deployment/web", SPACE, *words)


def test_rollouts(cluster: Up) -> None:
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
