"""Process metrics from /proc."""

from pathlib import Path

import pytest

from controller_manager.common.base.registry import Registry
from controller_manager.common.component.process_metrics import ProcessMetrics, address_space, ip_counters

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max address space         {}            unlimited            bytes
"""
NETSTAT = "TcpExt: SyncookiesSent\nTcpExt: 7\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 1500 2500\n"


@pytest.mark.parametrize(("text", "limit"), [("unlimited", 2.0**64), ("1048576", 1048576)])
def test_address_space_limit_from_proc(text: str, limit: float) -> None:
    assert address_space(LIMITS.format(text)) == limit
    assert address_space("") is None


def test_ip_counters_from_proc() -> None:
    assert ip_counters(NETSTAT) == {"InNoRoutes": 0, "InOctets": 1500, "OutOctets": 2500}
    assert ip_counters("IpExt: InOctets\n") == {}


def test_system_without_proc_has_no_metrics(tmp_path: Path) -> None:
    assert list(ProcessMetrics(None, tmp_path).collect()) == []


async def test_own_process_metrics_are_positive() -> None:
    registry = Registry()
    ProcessMetrics(registry)
    found = {sample.name: sample.value for metric in registry.collect() for sample in metric.samples}
    for name in ("resident_memory_bytes", "virtual_memory_bytes", "virtual_memory_max_bytes", "open_fds", "max_fds"):
        assert found[f"process_{name}"] > 0
    assert found["asyncio_tasks"] >= 1
