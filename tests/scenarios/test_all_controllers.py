"""All controllers in one manager, which share its metrics registry, informers and client."""

import pytest

from controller_manager.app import catalog
from controller_manager.app.features import ManagerFeatureOptions
from controller_manager.framework.controller.runner import Phase
from controller_manager.testing import Cluster
from controller_manager.testing.cloud import SimulatedCloud
from tests.scenarios.cloud import manage

RANGES = ("--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16")


@pytest.mark.virtual
async def test_all_controllers_run_in_one_manager() -> None:
    """The manager fails to start if two controllers register the same metric, for instance."""
    names = [spec.name for spec in catalog.installed() if all(map(ManagerFeatureOptions().enabled, spec.gates))]
    async with Cluster() as cluster:
        replica = await manage(cluster, SimulatedCloud(), *RANGES, f"--controllers={','.join(names)}")
        await cluster.settle()
        found = {one.name: one.phase for one in replica.manager.state().controllers}
        assert found == dict.fromkeys(names, Phase.RUNNING)
