"""A cluster is the same whether its server starts for the first time or from a cached first start."""

import asyncio
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import NAMESPACES, PODS
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster, builders, first_start, run

FLAGS = ("--service-cluster-ip-range=10.0.0.0/24",)


async def run_cluster(flags: tuple[str, ...] = FLAGS) -> tuple[Any, ...]:
    """Return the content of a cluster, the result of a write, and the next random number."""
    async with Cluster(flags) as started:
        made = await started.client.create(PODS, builders.pod("p"))
        records = sorted(started.rows.at(started.rows.revision, None))
        events = [event async for event in started.client.watch(NAMESPACES, resource_version="1", timeout=1)]
        return made.metadata.uid, records, events, random_source().token(), asyncio.get_running_loop().time()


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(first_start, "_KEPT", kept)
    return kept


@pytest.mark.parametrize("seed", [0, 7])
def test_second_first_start_equals_the_first(empty_cache: dict[Any, Any], seed: int) -> None:
    first = run(run_cluster(), seed=seed)
    assert len(empty_cache) == 1
    assert run(run_cluster(), seed=seed) == first
    assert len(empty_cache) == 1


def test_writes_of_one_cluster_are_invisible_to_another() -> None:
    first, second = run(run_cluster()), run(run_cluster())
    assert first == second
    assert sum(record.resource == "pods" for record in second[1]) == 1


def test_another_seed_changes_draws_after_start_only(empty_cache: dict[Any, Any]) -> None:
    first = run(run_cluster(), seed=1)
    second = run(run_cluster(), seed=2)
    assert second[0] != first[0]
    assert second[1][:-1] == first[1][:-1]
    assert len(empty_cache) == 1


def test_other_flags_make_another_first_start(empty_cache: dict[Any, Any]) -> None:
    run(run_cluster())
    run(run_cluster(("--service-cluster-ip-range=10.1.0.0/24",)))
    assert len(empty_cache) == 2


@pytest.mark.parametrize("seed", [0, 1])
def test_draws_of_start_do_not_repeat_in_test(seed: int) -> None:
    def uids(records: list[Any]) -> list[str]:
        return [msgspec.json.decode(record.data)["metadata"]["uid"] for record in records]

    started = uids(run(run_cluster(), seed=seed)[1])
    assert len(set(started)) == len(started)


def test_number_of_cached_first_starts_is_bounded(monkeypatch: pytest.MonkeyPatch, empty_cache: dict[Any, Any]) -> None:
    monkeypatch.setattr(first_start, "_MOST_KEPT", 2)
    for number in range(4):
        run(run_cluster((f"--service-cluster-ip-range=10.{number}.0.0/24",)))
    assert len(empty_cache) == 2
