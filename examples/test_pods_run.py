"""A test of the built-in controllers on three virtual nodes."""

import pytest

from controller_manager.framework import DEPLOYMENTS, Key
from controller_manager.testing import Cluster, builders


@pytest.mark.virtual  # an hour of sleep takes no time
async def test_pods_run():
    async with Cluster(nodes=3) as cluster:  # API server, controllers, scheduler and virtual nodes, in this process
        await cluster.client.create(DEPLOYMENTS, builders.deployment("web", replicas=3))
        await cluster.settle()
        deployment = await cluster.client.get(DEPLOYMENTS, Key("default", "web"))
        assert deployment.status.ready_replicas == 3
