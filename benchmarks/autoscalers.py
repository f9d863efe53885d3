"""Five thousand autoscalers looked at once a period: the CPU of one period, in time that jumps.

Everything is in one process, since aggregated APIs are not served by the API server yet: the figure includes what the
server spends on 5,000 scales, and a metrics API that answers canned bytes. The ceiling is a bare client that reads the
same scales and the same metrics, and computes nothing.
"""

import json
import time
from collections.abc import Awaitable, Callable

from benchmarks.harness import Result
from controller_manager.common.api.autoscaling import HORIZONTAL_POD_AUTOSCALERS, scale_of
from controller_manager.common.api.metrics import POD_METRICS, RESOURCE_METRICS
from controller_manager.common.api.wire import Request, Response
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster
from controller_manager.testing.metering import DEPLOYMENTS, Meter, Workload, autoscaler
from controller_manager.testing.virtual import run as run_virtually

COUNT = 5000
PERIOD = 15.0
FLAGS = ("--leader-elect=false", "--controllers=horizontalpodautoscaling", "--cluster-api-qps=-1")
PATH = f"/apis/{RESOURCE_METRICS}/v1beta1/namespaces/default/pods"


def run() -> list[Result]:
    """CPU seconds of a period, and of the bare requests."""
    return run_virtually(_run())


async def _run() -> list[Result]:
    async with Cluster() as cluster:
        meter = Meter(cluster)
        shops = [Workload(cluster, meter, f"web-{number}", load=50) for number in range(COUNT)]
        answers = {}
        for shop in shops:
            await shop.create(1)
            await cluster.client.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler(shop))
            answers[f"app={shop.key.name}"] = _usage(f"{shop.key.name}-1")

        async def answer(request: Request) -> Response:
            await cluster.sleep(0.2)
            selector = dict(request.query)["labelSelector"]
            return Response(200, {"content-type": "application/json"}, answers[selector])

        cluster.serve_beside(f"/apis/{RESOURCE_METRICS}", answer)
        bare = await _cpu(lambda: _bare(cluster, shops))
        await cluster.manage(*FLAGS)
        await cluster.sleep(2 * PERIOD)
        cpu = await _cpu(lambda: cluster.sleep(PERIOD))
    figure = f"{cpu:.2f} CPU s"
    return [
        Result(f"{COUNT:,} autoscalers, a period", figure, f"{PERIOD:g} s", cpu / PERIOD, 0.5, at_most=True),
        Result("  beside bare requests", figure, f"{bare:.2f} CPU s", cpu / bare, 12, at_most=True),
    ]


async def _bare(cluster: Cluster, shops: list[Workload]) -> None:
    scales = scale_of(DEPLOYMENTS)
    for shop in shops:
        await cluster.client.get(scales, shop.key, subresource="scale")
        query = (("labelSelector", f"app={shop.key.name}"),)
        POD_METRICS.decode(await cluster.client.raw(Call("GET", PATH, query)))


async def _cpu(work: Callable[[], Awaitable[None]]) -> float:
    began = time.process_time()
    await work()
    return time.process_time() - began


def _usage(pod: str) -> bytes:
    usage = {"name": "main", "usage": {"cpu": "50m"}}
    item = {"metadata": {"name": pod}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s", "containers": [usage]}
    return json.dumps({"kind": "PodMetricsList", "items": [item]}).encode()
