"""An autoscaler of a custom resource with a scale behaves as recorded from kube-controller-manager 1.36.

A line of `autoscaled_custom.jsonl` has steps (`custom_autoscaler.py`) and the state six seconds, or three periods,
after each step, without metrics. The state is recorded once the autoscaler exists.
"""

import json
from pathlib import Path

import pytest

from controller_manager.testing import Cluster
from tests.scenarios.batch_steps import Tree, sender_of
from tests.scenarios.custom_autoscaler import CustomAutoscalerSteps

ROWS = [json.loads(line) for line in Path(__file__).with_name("autoscaled_custom.jsonl").read_text().splitlines()]
FLAGS = (
    "--leader-elect=false", "--controllers=horizontalpodautoscaling", "--horizontal-pod-autoscaler-sync-period=2s",
)  # fmt: skip


@pytest.mark.virtual
@pytest.mark.parametrize("row", ROWS, ids=[row["scenario"] for row in ROWS])
async def test_custom_resource_is_scaled_as_recorded(row: Tree) -> None:
    async with Cluster() as cluster:
        await cluster.manage(*FLAGS)
        steps = CustomAutoscalerSteps(sender_of(cluster), "default")
        for step in row["steps"]:
            await steps.take(*step["do"])
            await cluster.sleep(40 if step["do"][0] == "define" else 6)
            expected = {name: value for name, value in step.items() if name != "do"}
            assert expected == ({} if not expected else await steps.seen()), step["do"]
