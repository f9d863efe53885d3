"""What the tests of the last steps of admission share."""

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import pytest

from apiserver_stub.admission.allocator import Allocator
from apiserver_stub.admission.services import ServiceAllocation

Give = Callable[..., tuple[dict[str, Any], list[str]]]


@pytest.fixture
def ledger() -> Allocator:
    return Allocator(lambda _: False)


@pytest.fixture
def allot(ledger: Allocator) -> Callable[..., tuple[dict[str, Any], list[str]]]:
    """What becomes of a spec, and what is wrong with it."""

    def give(
        spec: dict[str, Any], old: dict[str, Any] | None = None, ranges: str = "10.0.0.0/24", key: str = "default/s"
    ) -> tuple[dict[str, Any], list[str]]:
        networks = {f"IPv{n.version}": [n] for n in map(ip_network, ranges.split(","))}
        given = {"type": "ClusterIP", "ports": [{"port": 80}], **spec}
        found = ServiceAllocation(networks, range(30000, 32768), ledger).allot(given, old or {}, key)
        return given, [f"{cause.field}: {cause.message}" for cause in found]

    return give
