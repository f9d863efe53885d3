"""Validating admission policies as recorded from Kubernetes 1.36, by requests to a whole server."""

from collections.abc import Callable
from typing import Any

import pytest

from apiserver_stub.apis.apiextensions.conversion import Converters
from apiserver_stub.apis.apiextensions.resources import resources_of
from apiserver_stub.common.offload import Offload
from tests.apiserver_stub.whole_server.recorded_requests import play, rows

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def no_webhook(_config: Any, _body: bytes, _timeout: float) -> bytes:
    raise AssertionError("no definition here asks a webhook")


CONVERTERS = Converters(no_webhook, Offload())


@pytest.mark.parametrize("name", ["validating_policies", "validating_policy_rules", "validating_policies_more"])
async def test_answers_match_kube_apiserver(started: Callable[..., Any], name: str) -> None:
    found: list[str] = []
    async with started("--authorization-mode=RBAC") as api:
        for number, row in enumerate(rows(name)):
            for step in row["steps"]:
                if step["path"] == DEFINITIONS:
                    for info in resources_of(step["body"], CONVERTERS.of(step["body"])):
                        api.server.kinds.add(info)
            steps = [step for step in row["steps"] if step["path"] != DEFINITIONS]
            found += await play(api, {**row, "steps": steps}, f"x{number}")
    assert not found, "\n".join(found)
