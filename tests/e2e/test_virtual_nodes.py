"""The first steps in a cluster that runs pods: kubectl, from a deployment to its logs and deletion."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.conftest import ClusterUp, running

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl")]
SOON = 60.0  # seconds until an expected event, on a busy machine too


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUp]:
    with running(tmp_path_factory.mktemp("nodes") / "cluster", "--nodes=2", "--managers=1") as started:
        yield started


def wait_for(holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < SOON
        time.sleep(0.1)


def test_deployment_life_cycle(up: ClusterUp) -> None:
    wait = f"--timeout={SOON:.0f}s"
    up.kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=3")
    assert "successfully rolled out" in up.kubectl("rollout", "status", "deployment/web", wait)
    up.kubectl("expose", "deployment", "web", "--port=80")
    ips = set(up.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIP}").split())
    assert len(ips) == 3
    addresses = "jsonpath={.items[0].endpoints[*].addresses[0]}"
    slices = ("get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", addresses)
    wait_for(lambda: set(up.kubectl(*slices).split()) == ips)
    up.kubectl("rollout", "pause", "deployment/web")
    up.kubectl("set", "image", "deployment/web", "nginx=nginx:2")
    image = ("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.containers[0].image}")
    assert set(up.kubectl(*image).split()) == {"nginx:1"}
    up.kubectl("rollout", "resume", "deployment/web")
    up.kubectl("rollout", "status", "deployment/web", wait)
    wait_for(lambda: set(up.kubectl(*image).split()) == {"nginx:2"})
    up.kubectl("rollout", "undo", "deployment/web")
    up.kubectl("rollout", "status", "deployment/web", wait)
    wait_for(lambda: set(up.kubectl(*image).split()) == {"nginx:1"})
    up.kubectl("delete", "deployment", "web", "--cascade=foreground", wait)
    assert up.kubectl("get", "pods", "-l", "app=web", "-o", "name") == ""


def test_job_completes_and_logs_its_end(up: ClusterUp) -> None:
    up.kubectl("create", "job", "sum", "--image=example.org/sum:1")
    up.kubectl("wait", "--for=condition=complete", "job/sum", f"--timeout={SOON:.0f}s")
    output = up.kubectl("logs", "job/sum").splitlines()
    assert output[0] == "simulated: sum starts, of the image example.org/sum:1"
    assert output[-1] == "simulated: ends with exit code 0"


def test_exec_on_virtual_node_explains_nothing_runs(up: ClusterUp) -> None:
    up.kubectl("run", "shell", "--image=example.org/shell:1")
    up.kubectl("wait", "--for=condition=ready", "pod/shell", f"--timeout={SOON:.0f}s")
    for command in (("exec", "shell", "--", "ls"), ("port-forward", "shell", "0:80"), ("attach", "shell")):
        output = up.ask(*command)
        assert output.returncode == 1
        assert "this is a virtual node: nothing runs here" in output.stderr
    up.kubectl("delete", "pod", "shell", f"--timeout={SOON:.0f}s")
