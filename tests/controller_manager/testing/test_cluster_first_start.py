"""A cluster is the same whether its server was the first to start or found what another's first start had left."""

import asyncio
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import NAMESPACES, PODS
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster, builders, first_start, run

FLAGS = ("--service-cluster-ip-range=10.0.0.0/24",)


async def live(flags: tuple[str, ...] = FLAGS) -> tuple[Any, ...]:
    """Everything a cluster holds, what comes of a write, and what chance says next."""
    async with Cluster(flags) as started:
        made = await started.client.create(PODS, builders.pod("p"))
        records = sorted(started.rows.at(started.rows.revision, None))
        events = [event async for event in started.client.watch(NAMESPACES, resource_version="1", timeout=1)]
        return made.metadata.uid, records, events, random_source().token(), asyncio.get_running_loop().time()


@pytest.fixture(autouse=True)
def none_kept(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(first_start, "_KEPT", kept)
    return kept


@pytest.mark.parametrize("seed", [0, 7])
def test_second_first_start_equals_the_first(none_kept: dict[Any, Any], seed: int) -> None:
    first = run(live(), seed=seed)
    assert len(none_kept) == 1
    assert run(live(), seed=seed) == first
    assert len(none_kept) == 1


def test_writes_of_one_cluster_are_invisible_to_another() -> None:
    first, second = run(live()), run(live())
    assert first == second
    assert sum(record.resource == "pods" for record in second[1]) == 1


def test_another_seed_changes_draws_after_start_only(none_kept: dict[Any, Any]) -> None:
    first = run(live(), seed=1)
    second = run(live(), seed=2)
    assert second[0] != first[0]
    assert second[1][:-1] == first[1][:-1]
    assert len(none_kept) == 1


def test_other_flags_make_another_first_start(none_kept: dict[Any, Any]) -> None:
    run(live())
    run(live(("--service-cluster-ip-range=10.1.0.0/24",)))
    assert len(none_kept) == 2


@pytest.mark.parametrize("seed", [0, 1])
def test_draws_of_start_do_not_repeat_in_test(seed: int) -> None:
    def uids(records: list[Any]) -> list[str]:
        return [msgspec.json.decode(record.data)["metadata"]["uid"] for record in records]

    started = uids(run(live(), seed=seed)[1])
    assert len(set(started)) == len(started)


def test_number_of_cached_first_starts_is_bounded(monkeypatch: pytest.MonkeyPatch, none_kept: dict[Any, Any]) -> None:
    monkeypatch.setattr(first_start, "_MOST_KEPT", 2)
    for number in range(4):
        run(live((f"--service-cluster-ip-range=10.{number}.0.0/24",)))
    assert len(none_kept) == 2
