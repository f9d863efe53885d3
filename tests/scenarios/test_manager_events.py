"""The events of a manager's controllers, in virtual time."""

from collections.abc import Callable

import pytest

from controller_manager.common.api.apps import REPLICA_SETS
from controller_manager.common.api.batch import JOBS
from controller_manager.common.api.core import EVENTS
from controller_manager.common.api.wire import Request, Response
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster
from tests.scenarios.batch import job
from tests.scenarios.workloads import replica_set

pytestmark = pytest.mark.virtual


def losing(component: str) -> Callable[[Request], Response | None]:
    """Return a handler that drops the events of a component."""

    def intercept(request: Request) -> Response | None:
        if request.method == "POST" and request.path == EVENTS.path("default") and component.encode() in request.body:
            raise TransportError("lost")
        return None

    return intercept


async def test_failed_event_writes_do_not_block_other_controllers() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--leader-elect=false", "--controllers=replicaset,job")
        replica.network.intercept(losing("replicaset-controller"))
        await cluster.client.create(REPLICA_SETS, replica_set(replicas=100))
        await cluster.sleep(1)
        await cluster.client.create(JOBS, job())
        await cluster.sleep(5)
        reporters = {one.source.component for one in (await cluster.client.list(EVENTS)).items}
        assert reporters == {"job-controller"}
