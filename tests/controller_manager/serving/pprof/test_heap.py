"""What memory is found to be used by."""

import asyncio
import gc
import sys
import tracemalloc
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest

from controller_manager.api.core import Pod
from controller_manager.base.tasks import Tasks
from controller_manager.serving.pprof import heap
from controller_manager.serving.pprof.census import Census
from controller_manager.serving.pprof.profile import Profile

MANY = 3_000


class Untracked(msgspec.Struct, gc=False):
    text: str
    more: Any = None


@dataclass
class Holder:
    held: dict[str, Any]


class Owned:
    pass


async def census() -> dict[str, tuple[int, int]]:
    found = Census(most=50_000_000)  # whatever the tests before have left
    await found.take()
    assert not found.cut
    return {name: counts for (_, name), counts in found.by_type().items()}


async def test_what_the_garbage_collector_does_not_list_is_counted_too():
    before = await census()
    holder = Holder({str(number): Untracked(f"text {number}", Untracked("inner")) for number in range(MANY)})
    assert not gc.is_tracked(holder.held)
    after = await census()
    count, size = after["Untracked"]
    assert count - before.get("Untracked", (0, 0))[0] == 2 * MANY
    assert size >= count * sys.getsizeof(Untracked("x"))
    assert after["str"][0] - before["str"][0] >= 2 * MANY


async def test_so_is_what_was_made_before_the_start_was_over():
    async def hold() -> None:
        held = {str(number): Owned() for number in range(MANY)}
        await asyncio.sleep(60)
        held.clear()

    async with Tasks() as tasks:
        tasks.start(hold(), name="holds")
        await asyncio.sleep(0)
        gc.collect()
        gc.freeze()
        try:
            found = await census()
        finally:
            gc.unfreeze()
    assert found["Owned"][0] == MANY


async def test_what_has_many_owners_is_counted_once():
    gc.collect()
    shared, alone = Owned(), [Owned()]
    held = [shared] * MANY
    found = await census()
    assert found["Owned"][0] == 2
    assert len(held) + len(alone) == MANY + 1


async def test_others_go_on_during_a_census():
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Tasks() as tasks:
        tasks.start(turn(), name="turns")
        await census()
    assert turns > 20


async def test_objects_that_hold_raw_bytes_have_a_believable_size():
    pods = [Pod.decode(b'{"metadata":{"name":"a","managedFields":[]}}') for _ in range(10)]
    found = await census()
    assert found["Raw"][1] < 1_000_000
    assert found["Pod"][0] >= len(pods)


async def test_a_census_ends_at_its_bound(monkeypatch):
    monkeypatch.setattr(heap, "Census", partial(Census, most=2_000))
    profile = await heap.heap_profile(heap.IN_USE)
    assert any("ended early" in comment for comment in profile.comments)


def value(profile: Profile, function: str, column: str) -> int:
    index = [unit.type for unit in profile.units].index(column)
    return sum(
        one.values[index] for one in profile.samples if any(frame.function.endswith(function) for frame in one.stack)
    )


def allocate(held: list[bytes]) -> None:
    held.extend(bytes(10_000) for _ in range(100))


async def allocate_soon(held: list[bytes]) -> None:
    await asyncio.sleep(0.05)
    allocate(held)


@pytest.mark.parametrize("main", [heap.IN_USE, heap.ALLOCATED])
async def test_with_seconds_what_allocates_meanwhile_is_told(main: str):
    held: list[bytes] = []
    allocate(held)
    async with Tasks() as tasks:
        tasks.start(allocate_soon(held), name="allocates")
        profile = await heap.allocation_profile(0.2, main)
    assert not tracemalloc.is_tracing()
    assert profile.main == main
    for name in ("objects", "space"):
        held_then = value(profile, "test_heap.allocate", f"inuse_{name}")
        assert value(profile, "test_heap.allocate", f"alloc_{name}") == held_then
        assert value(profile, "test_heap.allocate_soon", f"inuse_{name}") >= held_then
    assert 1_000_000 <= value(profile, "test_heap.allocate", main) < 1_200_000
    assert any("freed" in comment for comment in profile.comments)


async def test_where_everything_is_traced_the_change_is_told():
    held: list[bytes] = []
    tracemalloc.start(10)
    try:
        allocate(held)
        assert value(await heap.heap_profile(heap.IN_USE), "test_heap.allocate", heap.IN_USE) >= 1_000_000
        async with Tasks() as tasks:
            tasks.start(allocate_soon(held), name="allocates")
            profile = await heap.allocation_profile(0.2, heap.IN_USE)
        assert tracemalloc.is_tracing()
        assert 1_000_000 <= value(profile, "test_heap.allocate", heap.IN_USE) < 1_200_000
    finally:
        tracemalloc.stop()


async def test_tracing_ends_when_its_asker_leaves_and_when_it_takes_too_much(monkeypatch):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await heap.allocation_profile(60, heap.IN_USE)
    assert not tracemalloc.is_tracing()
    monkeypatch.setattr(heap, "_MOST_TRACES", 0)
    profile = await heap.allocation_profile(60, heap.IN_USE)
    assert any("ended early" in comment for comment in profile.comments)
