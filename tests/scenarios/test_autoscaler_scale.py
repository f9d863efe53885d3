"""Five thousand autoscalers are all evaluated in each period, with a metrics API that takes 200 ms (virtual time).

This holds with the default limits: autoscaling may send fifty times the 20 requests per second of `--cluster-api-qps`,
and an evaluation without change sends two. The short form has a tenth of the autoscalers and of the limit, and an API
that takes ten times as long.
"""

import pytest

from controller_manager.common.api.autoscaling import HORIZONTAL_POD_AUTOSCALERS
from controller_manager.testing import Cluster
from controller_manager.testing.metering import Meter, Workload, autoscaler

TARGET = {"type": "Value", "value": "10"}
PERIOD = 15.0


@pytest.mark.virtual
@pytest.mark.parametrize(("autoscalers", "latency", "qps"), [
    (500, 2.0, "2"), pytest.param(5000, 0.2, "20", marks=pytest.mark.long),
])  # fmt: skip
async def test_many_autoscalers_are_all_evaluated_each_period(autoscalers: int, latency: float, qps: str) -> None:
    async with Cluster() as cluster:
        meter = Meter(cluster)
        meter.latency = latency
        for number in range(autoscalers):
            web = Workload(cluster, meter, f"web-{number}", namespace="default")
            await web.declare(1)
            metric = {"type": "External", "external": {"metric": {"name": f"q-{number}"}, "target": TARGET}}
            meter.values[f"namespaces/default/q-{number}"] = "10"
            await cluster.client.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler(web, metric))
        await cluster.manage(
            "--leader-elect=false", "--controllers=horizontalpodautoscaling", f"--cluster-api-qps={qps}"
        )
        await cluster.sleep(PERIOD)
        seconds = []
        for _ in range(int(PERIOD) + 1):
            meter.asked.clear()
            await cluster.sleep(1.0)
            seconds.append(list(meter.asked))
        assert len({path for asked in seconds for path in asked}) == autoscalers
        assert max(map(len, seconds)) < 2 * autoscalers / PERIOD, "requests come in a burst"
