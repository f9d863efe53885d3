"""Heap and allocation profiles."""

import asyncio
import fractions
import functools
import json
import json.decoder
import sys
import tracemalloc
from types import CodeType, ModuleType

import pytest

from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.pprof import heap
from controller_manager.common.serving.pprof.heap import Census
from controller_manager.common.serving.pprof.profile import Profile

TEXT = json.dumps([f"{number:0>10000}" for number in range(100)])
ALLOCATES, CALLS = "JSONDecoder.raw_decode", "JSONDecoder.decode"


async def test_heap_snapshot_has_types_as_frames(monkeypatch):
    found = Census(cut=True)
    found.count(["a", "b", 1])

    async def take_census() -> Census:
        return found

    monkeypatch.setattr(heap, "take_census", take_census)
    profile = await heap.heap_profile(heap.IN_USE)
    size = sys.getsizeof("a")
    assert value(profile, "builtins.str", "inuse_objects") == value(profile, "builtins.str", "alloc_objects") == 2
    assert value(profile, "builtins.str", "inuse_space") == 2 * size
    assert any("ended early" in comment for comment in profile.comments)


def value(profile: Profile, function: str, column: str) -> int:
    index = [unit.type for unit in profile.units].index(column)
    return sum(one.values[index] for one in profile.samples if any(frame.function == function for frame in one.stack))


def allocate(held: list[object]) -> None:
    """Allocate a megabyte in a module of the standard library, because pytest rewrites test modules."""
    held.append(json.loads(TEXT))


async def allocate_soon(held: list[object]) -> None:
    await asyncio.sleep(0.05)
    allocate(held)


@pytest.mark.parametrize("main", [heap.IN_USE, heap.ALLOCATED])
async def test_heap_delta_shows_allocations_by_line(main: str):
    held: list[object] = []
    allocate(held)
    async with Tasks() as tasks:
        tasks.start(allocate_soon(held), name="allocates")
        profile = await heap.allocation_profile(0.2, main)
    assert not tracemalloc.is_tracing()
    assert profile.main == main
    for name in ("objects", "space"):
        held_then = value(profile, ALLOCATES, f"inuse_{name}")
        assert value(profile, ALLOCATES, f"alloc_{name}") == held_then
        assert value(profile, CALLS, f"inuse_{name}") >= held_then
    assert 1_000_000 <= value(profile, ALLOCATES, main) < 1_200_000
    assert any("freed" in comment for comment in profile.comments)


async def test_heap_delta_under_full_tracing_shows_the_change():
    held: list[object] = []
    tracemalloc.start(10)
    try:
        allocate(held)
        assert value(await heap.heap_profile(heap.IN_USE), ALLOCATES, heap.IN_USE) >= 1_000_000
        async with Tasks() as tasks:
            tasks.start(allocate_soon(held), name="allocates")
            profile = await heap.allocation_profile(0.2, heap.IN_USE)
        assert tracemalloc.is_tracing()
        assert 1_000_000 <= value(profile, ALLOCATES, heap.IN_USE) < 1_200_000
    finally:
        tracemalloc.stop()


async def test_tracing_stops_on_cancel_and_memory_limit(monkeypatch):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await heap.allocation_profile(60, heap.IN_USE)
    assert not tracemalloc.is_tracing()
    monkeypatch.setattr(heap, "_MOST_TRACES", 0)
    profile = await heap.allocation_profile(60, heap.IN_USE)
    assert any("ended early" in comment for comment in profile.comments)


INNER = next(
    one
    for one in functools.lru_cache.__code__.co_consts
    if isinstance(one, CodeType) and one.co_name == "decorating_function"
)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (json, json.loads.__code__),
        (json.decoder, json.decoder.JSONDecoder.decode.__code__),
        (asyncio.queues, asyncio.Queue.maxsize.fget.__code__),
        (fractions, fractions.Fraction.from_float.__func__.__code__),
        (functools, INNER),
    ],
)
def test_line_maps_to_its_function(module: ModuleType, code: CodeType):
    last = max(line for _, _, line in code.co_lines() if line)
    frame = heap._function(module.__name__, code.co_filename, last)
    assert frame == (code.co_qualname, code.co_filename, last, code.co_firstlineno)


@pytest.mark.parametrize("module", ["", "builtins", "__main__", __name__])
def test_line_without_known_function_is_named_by_number(module: str):
    assert heap._function(module, "/nowhere/else.py", 7) == ("line 7", "/nowhere/else.py", 7, 7)
