"""Autoscaling under network faults and manager failures, by seed, in virtual time.

Invariants:
- replicas of a target stay between minimum and maximum;
- during the life of a manager a target scales no faster than its policies allow;
- with constant loads and no faults a target gets the replicas of the formula, and keeps them.
"""

import contextlib
import math

import orjson
import pytest

from controller_manager.common.api.autoscaling import HORIZONTAL_POD_AUTOSCALERS
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.metrics import RESOURCE_METRICS
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.random import random_source
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.metering import Meter, Workload, autoscaler

LOW, HIGH = 2, 8
MORE, LESS, PERIOD = 2, 1, 30.0
ROUNDS = 5
TARGET = 50  # percent of the 100m that each pod requests
FLAGS = (
    "--leader-elect=false",
    "--controllers=horizontalpodautoscaling",
    "--horizontal-pod-autoscaler-downscale-stabilization=45s",
)
BEHAVIOR = {
    "scaleUp": {"policies": [{"type": "Pods", "value": MORE, "periodSeconds": int(PERIOD)}]},
    "scaleDown": {"policies": [{"type": "Pods", "value": LESS, "periodSeconds": int(PERIOD)}]},
}


class ScaleChecker:
    """Checks each write of a scale against the invariants."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Times and sizes of growth by target, during the life of one manager.
        self.changes: dict[str, list[tuple[float, int]]] = {}
        self.writes = 0
        cluster.serve_beside("/apis/apps", self.answer)

    async def answer(self, request: Request) -> Response:
        ours = request.method == "PUT" and request.path.endswith("/scale")
        before = await self._replicas(request) if ours else 0
        response = await self._cluster.api.handle(request)
        if ours and response.status == 200 and isinstance(response.body, bytes):
            self._check(request.path, before, orjson.loads(response.body)["spec"]["replicas"])
        return response

    def _check(self, path: str, before: int, after: int) -> None:
        self.writes += 1
        assert LOW <= after <= HIGH, "a target was scaled beyond the bounds"
        if "/slow/" not in path:
            return
        now, changes = monotonic(), self.changes.setdefault(path, [])
        started = before - sum(change for at, change in changes if at > now - PERIOD)
        if LOW <= before <= HIGH:
            assert after <= max(before, started + MORE), "target grew too fast"
            assert after >= min(before, started - LESS), "target shrank too fast"
        changes.append((now, after - before))

    async def _replicas(self, request: Request) -> int:
        asked = Request("GET", request.path, headers=request.headers, certificate=request.certificate)
        found = await self._cluster.api.handle(asked)
        return int(orjson.loads(bytes(found.body))["spec"]["replicas"]) if isinstance(found.body, bytes) else 0


class FaultRun:
    """Two targets with changing loads and faults; one scales slowly."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.checker = ScaleChecker(cluster)
        self.meter = Meter(cluster)
        self.targets = [Workload(cluster, self.meter, name) for name in ("fast", "slow")]

    async def begin(self) -> None:
        for target in self.targets:
            target.load = self.some_load()
            await target.create(int(random_source().uniform(LOW, HIGH)))
            behavior = {"behavior": BEHAVIOR} if target.key.name == "slow" else {}
            made = autoscaler(target, low=LOW, high=HIGH, **behavior)
            await self.cluster.client.create(HORIZONTAL_POD_AUTOSCALERS, made)
        self.manager = await self.manage()

    async def manage(self) -> Replica:
        self.checker.changes.clear()
        return await self.cluster.manage(*FLAGS, faults=0.2)

    def some_load(self) -> int:
        return int(random_source().uniform(0, 500))

    async def fail_something(self) -> None:
        failures = (self.change_load, self.change_load, self.hang, self.lose_manager, self.cut_off, self.slow_metrics)
        await failures[int(random_source().uniform(0, len(failures))) % len(failures)]()
        for _ in range(2):
            await self.cluster.sleep(random_source().uniform(0, 25))
            await self.follow()

    async def follow(self) -> None:
        with contextlib.suppress(ApiError, TransportError):
            for target in self.targets:
                await target.follow()

    async def change_load(self) -> None:
        for target in self.targets:
            target.load = self.some_load()

    async def hang(self) -> None:
        self.meter.hanging.add(RESOURCE_METRICS)
        await self.cluster.sleep(random_source().uniform(0, 30))
        self.meter.hanging.clear()

    async def slow_metrics(self) -> None:
        self.meter.latency = random_source().uniform(0, 12)

    async def lose_manager(self) -> None:
        await self.manager.kill()
        self.manager = await self.manage()

    async def cut_off(self) -> None:
        self.manager.network.cut()
        await self.cluster.sleep(random_source().uniform(0, 30))
        self.manager.network.heal()

    async def heal(self) -> None:
        self.manager.network.heal()
        self.manager.network.rate = 0
        self.meter.latency = 0
        for _ in range(int(HIGH * PERIOD / 20) + 4):
            await self.cluster.sleep(20)
            await self.follow()


def steady(replicas: int, load: int) -> bool:
    """Return whether the formula keeps this number of replicas."""
    ratio = load // replicas / TARGET
    wanted = replicas if 0.9 <= ratio <= 1.1 else math.ceil(ratio * replicas)
    return replicas == min(max(wanted, LOW), HIGH)


@pytest.mark.virtual(seeds=200)
async def test_targets_stay_within_limits_and_converge_despite_faults() -> None:
    async with Cluster() as cluster:
        run = FaultRun(cluster)
        await run.begin()
        for _ in range(ROUNDS):
            await run.fail_something()
        await run.heal()
        assert not run.manager.has_ended
        writes = run.checker.writes
        for target in run.targets:
            assert steady(await target.replicas(), target.load), (target.key.name, await target.replicas(), target.load)
        await cluster.advance(120)
        assert run.checker.writes == writes
