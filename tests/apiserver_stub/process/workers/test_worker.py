"""Shares of a limit, and what each worker has of its own."""

import pytest

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.process.build import build
from apiserver_stub.process.workers import process
from apiserver_stub.server.identity import server_id
from apiserver_stub.storage.worker import Worker
from controller_manager.common.base.runtime import Runtime


@pytest.mark.parametrize(
    ("total", "parts"), [(400, [100] * 4), (402, [101, 101, 100, 100]), (0, [0] * 4), (2, [1, 1, 1, 1])]
)
def test_limit_is_divided_among_workers(total: int, parts: list[int]) -> None:
    assert [Worker(number, 4).share(total) for number in range(4)] == parts


async def test_seats_of_workers_add_up_to_the_flags() -> None:
    flags = FLAGS.parse(
        ("--storage-backend=memory", "--max-requests-inflight=31", "--max-mutating-requests-inflight=0")
    )
    seats = 0.0
    for number in range(2):
        runtime = Runtime("test")
        build(flags, runtime, worker=Worker(number, 2))
        found = [metric for metric in runtime.registry.collect() if metric.name.endswith("nominal_limit_seats")]
        seats += sum(sample.value for metric in found for sample in metric.samples)
    alone = Runtime("test")
    build(flags, alone)
    found = [metric for metric in alone.registry.collect() if metric.name.endswith("nominal_limit_seats")]
    assert seats == pytest.approx(sum(sample.value for metric in found for sample in metric.samples), abs=8)


def test_each_worker_has_its_own_lease() -> None:
    assert server_id("vm", 0) == server_id("vm")
    assert len({server_id("vm", number) for number in range(5)}) == 5


def test_store_owner_knows_resources_with_ttl() -> None:
    assert {kind.storage for kind in built_in().all() if kind.strategy.has_ttl} == {process._EVENTS}
