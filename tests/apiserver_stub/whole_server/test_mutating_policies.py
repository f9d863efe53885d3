"""Mutating admission policies as recorded from Kubernetes 1.36, by requests to a whole server."""

from collections.abc import Callable
from typing import Any

import pytest

from apiserver_stub.apiextensions.conversion import Converters
from apiserver_stub.apiextensions.resources import resources_of
from apiserver_stub.offload import Offload
from tests.apiserver_stub.whole_server.recorded import played, rows

NAMES = ("policies", "configurations", "patches", "policy_rules")


@pytest.mark.parametrize("name", NAMES)
async def test_recorded_rows(started: Callable[..., Any], name: str) -> None:
    async with started() as api:
        recorded = enumerate(rows(f"mutating_{name}"))
        found = [told for number, row in recorded for told in await played(api, row, f"x{number}")]
    assert not found, "\n".join(found)


async def no_webhook(_config: Any, _body: bytes, _timeout: float) -> bytes:
    raise AssertionError("no definition here asks a webhook")


async def test_recorded_rows_of_custom_objects(started: Callable[..., Any]) -> None:
    converters = Converters(no_webhook, Offload())
    async with started() as api:
        for definition in rows("mutating_custom_fixtures"):
            for info in resources_of(definition, converters.of(definition)):
                api.server.kinds.add(info)
        recorded = enumerate(rows("mutating_custom"))
        found = [told for number, row in recorded for told in await played(api, row, f"x{number}")]
    assert not found, "\n".join(found)
