"""Validating admission policies as recorded from Kubernetes 1.36, by requests to a whole server."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver_stub.whole_server.recorded import played, rows


@pytest.mark.parametrize("name", ["validating_policies", "validating_policy_rules"])
async def test_recorded_rows(started: Callable[..., Any], name: str) -> None:
    async with started() as api:
        found = [told for number, row in enumerate(rows(name)) for told in await played(api, row, f"x{number}")]
    assert not found, "\n".join(found)
