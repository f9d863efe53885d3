"""Where memory goes: which stacks allocate it while it is traced, or else a census of the objects that are there."""

import asyncio
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import CodeType

from controller_manager.base import clock
from controller_manager.base.stacks import Frame
from controller_manager.serving.pprof.census import take_census
from controller_manager.serving.pprof.modules import Modules
from controller_manager.serving.pprof.profile import BYTES, COUNT, Profile, Sample, Unit

IN_USE, ALLOCATED = "inuse_space", "alloc_space"
_UNITS = (Unit("alloc_objects", COUNT), Unit(ALLOCATED, BYTES), Unit("inuse_objects", COUNT), Unit(IN_USE, BYTES))
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
        return await asyncio.to_thread(lambda: _by_stack(tracemalloc.take_snapshot(), main))
    census = await take_census()
    samples = tuple(
        Sample((Frame(f"{kind.__module__}.{kind.__qualname__}"),), (), (count, size, count, size))
        for kind, (count, size) in census.by_type.items()
    )
    return Profile(_UNITS, samples, (_BY_TYPE, _LASTING, *((_CUT,) if census.cut else ())), main)


async def allocation_profile(seconds: float, main: str) -> Profile:
    """What is allocated during the next seconds and still held then, by stack; slows the process down meanwhile."""
    if tracemalloc.is_tracing():
        before = await heap_profile(main)
        await asyncio.sleep(seconds)
        return (await heap_profile(main)).since(before)
    tracemalloc.start(_FRAMES)
    try:
        early = await _sleep_while_small(seconds)
        snapshot = await asyncio.to_thread(tracemalloc.take_snapshot)
    finally:
        tracemalloc.stop()  # at once: what follows allocates a lot itself
    profile = await asyncio.to_thread(_by_stack, snapshot, main)
    return replace(profile, comments=(*profile.comments, _EARLY)) if early else profile


async def _sleep_while_small(seconds: float) -> bool:
    """Sleep; whether it ended early."""
    until = clock.monotonic() + seconds
    while (left := until - clock.monotonic()) > 0:
        if tracemalloc.get_tracemalloc_memory() > _MOST_TRACES:
            return True
        await asyncio.sleep(min(left, _LOOK))
    return False


def _by_stack(snapshot: tracemalloc.Snapshot, main: str) -> Profile:
    modules = Modules()
    samples = tuple(
        Sample(
            tuple(
                _function(modules.of(place.filename), place.filename, place.lineno) for place in reversed(one.traceback)
            ),
            (),
            (one.count, one.size, one.count, one.size),
        )
        for one in snapshot.statistics("traceback")
    )
    _function.cache_clear()
    _functions.cache_clear()
    return Profile(_UNITS, samples, (_LASTING,), main)


@cache
def _function(module: str, file: str, line: int) -> Frame:
    """The innermost function that a line of a file belongs to."""
    around = [one for one in _functions(module) if one.file == file and one.first_line <= line <= one.line]
    if not around:
        return Frame(f"line {line}", file, line, line)
    return max(around, key=lambda one: one.first_line)._replace(line=line)


@cache
def _functions(module: str) -> tuple[Frame, ...]:
    """Each function of a loaded module from its first to its last line; none if its loader does not tell."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    read = getattr(spec.loader, "get_code", None) if spec is not None else None
    return tuple(_functions_in(read(spec.name))) if spec is not None and read is not None else ()


def _functions_in(code: CodeType | None) -> Iterator[Frame]:
    """What has no name is left out: a line alone does not tell it from the function around it."""
    for inner in code.co_consts if code is not None else ():
        if isinstance(inner, CodeType):
            if not inner.co_name.startswith("<"):
                last = max((line for _, _, line in inner.co_lines() if line is not None), default=inner.co_firstlineno)
                yield Frame(inner.co_qualname, inner.co_filename, last, inner.co_firstlineno)
            yield from _functions_in(inner)
