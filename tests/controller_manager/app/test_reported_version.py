"""The version set by `--version` is reported in metrics and pages."""

import pytest

from controller_manager.common.api.wire import Request
from controller_manager.testing import Cluster, Replica

pytestmark = pytest.mark.virtual


async def page(replica: Replica, path: str) -> str:
    answer = await replica.manager.pages.handle(Request("GET", path))
    assert isinstance(answer.body, bytes)
    return answer.body.decode()


@pytest.mark.flag("version")
async def test_version_flag_is_reported_in_metrics_and_statusz():
    async with Cluster() as cluster:
        open_paths = "--authorization-always-allow-paths=/metrics,/statusz"
        replica = await cluster.manage("--version=v1.36.7-rebuilt", open_paths)
        assert 'git_version="v1.36.7-rebuilt"' in await page(replica, "/metrics")
        assert "Binary version: v1.36.7-rebuilt\n" in await page(replica, "/statusz")
