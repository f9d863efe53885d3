"""A cluster is the same whether its server was the first to start or found what another's first start had left."""

import asyncio
from typing import Any

import pytest

from controller_manager.api.core import NAMESPACES, PODS
from controller_manager.base.random import random_source
from controller_manager.testing import Cluster, builders, cluster, run

FLAGS = ("--service-cluster-ip-range=10.0.0.0/24",)


async def live(flags: tuple[str, ...] = FLAGS) -> tuple[Any, ...]:
    """Everything a cluster holds, what comes of a write, and what chance says next."""
    async with Cluster(flags) as started:
        made = await started.client.create(PODS, builders.pod("p"))
        records = list(started._log._records.values())
        events = [event async for event in started.client.watch(NAMESPACES, resource_version="1", timeout=1)]
        return made.metadata.uid, records, events, random_source().token(), asyncio.get_running_loop().time()


@pytest.fixture(autouse=True)
def none_kept(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(cluster, "_KEPT", kept)
    return kept


@pytest.mark.parametrize("seed", [0, 7])
def test_the_second_is_as_the_first(none_kept: dict[Any, Any], seed: int) -> None:
    first = run(live(), seed=seed)
    assert len(none_kept) == 1
    assert run(live(), seed=seed) == first
    assert len(none_kept) == 1


def test_what_one_writes_no_other_finds() -> None:
    first, second = run(live()), run(live())
    assert first == second
    assert sum(record.resource == "pods" for record in second[1]) == 1


def test_others_begin_for_themselves(none_kept: dict[Any, Any]) -> None:
    first = run(live(), seed=1)
    assert run(live(), seed=2)[0] != first[0]
    run(live(("--service-cluster-ip-range=10.1.0.0/24",)), seed=1)
    assert len(none_kept) == 3


def test_a_bounded_number_is_kept(monkeypatch: pytest.MonkeyPatch, none_kept: dict[Any, Any]) -> None:
    monkeypatch.setattr(cluster, "_MOST_KEPT", 2)
    for seed in range(4):
        run(live(), seed=seed)
    assert len(none_kept) == 2
