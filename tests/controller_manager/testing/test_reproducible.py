"""A seed has the same result in every process, for any hash seed."""

import os
import subprocess
import sys

_TRACE = """
import hashlib
import msgspec
from controller_manager.common.api.apps import DEPLOYMENTS, Deployment
from controller_manager.common.api.resource import Key
from controller_manager.testing import Cluster
from controller_manager.testing.pod_agent import PodAgent
from controller_manager.testing.virtual import run
from controller_manager.testing.fault_injector import FaultInjector

FLAGS = ("--leader-elect=false", "--controllers=replicaset,deployment")
digest = hashlib.sha256()


def image(number):
    containers = [{"name": "c", "image": f"example.org/app:{number}"}]
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}


def note(changes):
    for change in changes:
        digest.update(change.row.data)


async def live():
    async with Cluster() as cluster, PodAgent(cluster, start=3, stop=10):
        cluster.api.store.subscribe(note)
        replica = await cluster.manage(*FLAGS, strict=False, faults=0.1)
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": image(0)}
        tree = {"metadata": {"namespace": "default", "name": "web"}, "spec": spec}
        await cluster.client.create(DEPLOYMENTS, Deployment.decode(msgspec.json.encode(tree)))
        faults = FaultInjector(cluster, replica, FLAGS, ("/api/v1/pods", "/apis/apps/v1/replicasets"))
        for number in range(1, 5):
            await cluster.sleep(7)
            await cluster.client.patch(DEPLOYMENTS, Key("default", "web"), {"spec": {"template": image(number)}})
            await cluster.sleep(1)
            await (faults.kill if number % 2 else faults.cut)()
        await cluster.sleep(60)


run(live(), seed=3)
print(digest.hexdigest())
"""


def test_seed_reproduces_writes_across_hash_seeds() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _TRACE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    results = [(*process.communicate(), process.returncode) for process in processes]
    assert [code for _, _, code in results] == [0, 0], results
    assert results[0][0] == results[1][0]
