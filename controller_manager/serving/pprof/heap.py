"""Where memory goes: which stacks allocate it while it is traced, or else a census of the objects that are there."""

import asyncio
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

from controller_manager.serving.pprof.census import Census
from controller_manager.serving.pprof.profile import BYTES, COUNT, Frame, Profile, Sums, Unit
from controller_manager.serving.pprof.stacks import Places

UNITS = (
    Unit("alloc_objects", COUNT),
    Unit("alloc_space", BYTES),
    Unit("inuse_objects", COUNT),
    Unit("inuse_space", BYTES),
)
IN_USE, ALLOCATED = "inuse_space", "alloc_space"
_SPACE = Unit("space", BYTES)
_FRAMES = 32  # kept of each traced stack
_MOST_TRACES = 128 * 1024 * 1024  # bytes that traces may take before tracing ends early
_LOOK = 0.25  # seconds between two looks at how much they take
_LASTING = "What was freed again is not recorded: alloc_* are, like inuse_*, what is still held."
_BY_TYPE = (
    "This is a census: a frame is a type, with how many objects of it there are and their own size, without what "
    "extension modules keep outside of objects. Ask with ?seconds=N for the stacks that allocate meanwhile."
)
_CUT = "The census ended early, at its bound: there is more."
_EARLY = "Tracing ended early, since the traces took too much memory themselves."


async def heap_profile(main: str) -> Profile:
    """What is held now: by stack where the process was started with tracemalloc on, by type otherwise."""
    if tracemalloc.is_tracing():
        return await asyncio.to_thread(_traced, main)
    census = Census()
    await census.take()
    sums = Sums(4)
    for (module, name), (count, size) in census.by_type().items():
        sums.add((Frame(f"{module}.{name}"),), (), count, size, count, size)
    comments = (_BY_TYPE, _LASTING, *((_CUT,) if census.cut else ()))
    return Profile(UNITS, tuple(sums.samples()), comments, main, _SPACE, 1)


async def allocation_profile(seconds: float, main: str) -> Profile:
    """What is allocated during the next seconds and still held then, by stack; slows the process down meanwhile."""
    if tracemalloc.is_tracing():
        before = await asyncio.to_thread(_traced, main)
        await asyncio.sleep(seconds)
        return (await asyncio.to_thread(_traced, main)).since(before)
    tracemalloc.start(_FRAMES)
    try:
        early = await _sleep_while_small(seconds)
        profile = await asyncio.to_thread(_traced, main)
    finally:
        tracemalloc.stop()
    return replace(profile, comments=(*profile.comments, _EARLY)) if early else profile


async def _sleep_while_small(seconds: float) -> bool:
    """Sleep; whether it ended early."""
    until = asyncio.get_running_loop().time() + seconds
    while (left := until - asyncio.get_running_loop().time()) > 0:
        if tracemalloc.get_tracemalloc_memory() > _MOST_TRACES:
            return True
        await asyncio.sleep(min(left, _LOOK))
    return False


def _traced(main: str) -> Profile:
    traces = tracemalloc.take_snapshot().statistics("traceback")
    sums, places = Sums(4), Places()
    for found in traces:
        stack = tuple(_stack(found.traceback, places))
        sums.add(stack, (), found.count, found.size, found.count, found.size)
    return Profile(UNITS, tuple(sums.samples()), (_LASTING,), main, _SPACE, 1)


def _stack(traceback: tracemalloc.Traceback, places: Places) -> Iterator[Frame]:
    for place in reversed(traceback):
        yield places.line(place.filename, place.lineno)
