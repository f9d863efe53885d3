"""The heap profile: allocating stacks while tracemalloc is on, otherwise a census of the objects in memory."""

import asyncio
import gc
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import repeat
from types import CodeType, ModuleType, NoneType
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.base import clock
from controller_manager.common.base.stacks import StackFrame
from controller_manager.common.serving.pprof.profile import BYTES, COUNT, Modules, Profile, Sample, Unit

_CHUNK = 1_000  # objects inspected before other tasks may run
_MOST_REMEMBERED = 1_000_000
# Reference count of an object with one owner during the census: owner, list, variable, argument.
_ONE_OWNER = 4
_LEAVES = frozenset({str, bytes, int, float, bool, NoneType, msgspec.Raw})
IN_USE, ALLOCATED = "inuse_space", "alloc_space"
_UNITS = (Unit("alloc_objects", COUNT), Unit(ALLOCATED, BYTES), Unit("inuse_objects", COUNT), Unit(IN_USE, BYTES))
_FRAMES = 32  # frames per traced stack
_MOST_TRACES = 128 * 1024 * 1024  # bytes of traces at which tracing ends early
_LOOK = 0.25  # seconds between two checks of that size
_LASTING = "What was freed again is not recorded: alloc_* are, like inuse_*, what is still held."
_BY_TYPE = (
    "This is a census: a frame is a type, with how many objects of it there are and their own size, without what "
    "extension modules keep outside of objects. Ask with ?seconds=N for the stacks that allocate meanwhile."
)
_CUT = "The census ended early, at its bound: there is more."
_EARLY = "Tracing ended early, since the traces took too much memory themselves."


class Census(msgspec.Struct):
    """Count and own size in bytes by type; each object is counted once. `cut` is True if the census ended
    early.
    """

    by_type: dict[type, tuple[int, int]] = {}
    cut: bool = False

    def count(self, objects: Sequence[Any]) -> None:
        """Add objects that were not counted before."""
        sizes = Counter(zip(map(type, objects), map(sys.getsizeof, objects, repeat(0)), strict=True))
        for (kind, size), count in sizes.items():
            own = msgspec.Raw.__basicsize__ if kind is msgspec.Raw else size  # its __sizeof__ returns an address
            before = self.by_type.get(kind, (0, 0))
            self.by_type[kind] = (before[0] + count, before[1] + count * own)


async def take_census(most: int = _MOST_REMEMBERED) -> Census:
    """Count all objects. Other tasks run meanwhile, so the result does not show a single moment.

    The garbage collector lists only containers created after the start, and only tracked objects. The census therefore
    starts with these, the modules, tasks and threads, and follows their references. An object with one owner is found
    only once and need not be remembered; most objects in informers are like that. The census ends early when `most`
    objects must be remembered.
    """
    census = Census()
    left = [*gc.get_objects(), sys.modules, *asyncio.all_tasks(), *threading.enumerate()]
    met = {*map(id, left), id(left)}
    left = list({id(one): one for one in left}.values())
    met |= {id(one) for one in (left, met, census, census.by_type)}
    while left and not census.cut:
        chunk = left[-_CHUNK:]
        del left[-_CHUNK:]
        census.count(chunk)
        for one in _referents(chunk):
            if id(one) not in met:
                if sys.getrefcount(one) > _ONE_OWNER:
                    met.add(id(one))
                left.append(one)
        census.cut = len(met) >= most
        await asyncio.sleep(0)
    return census


def _referents(objects: Sequence[Any]) -> list[Any]:
    found, others = list[Any](), list[Any]()
    for one in objects:
        kind = type(one)
        if kind in _LEAVES:
            continue
        if kind is dict:  # dicts with text keys do not report the keys
            found += one.keys()
            found += one.values()
        elif issubclass(kind, msgspec.Struct) and not gc.is_tracked(one):  # these do not report their fields
            found += [getattr(one, name) for name in kind.__struct_fields__ if hasattr(one, name)]
        elif issubclass(kind, ModuleType):  # the module of asyncio reports freed objects (Python 3.12, 3.13)
            found.append(vars(one))
        else:
            others.append(one)
    found += gc.get_referents(*others)
    return found


async def heap_profile(main: str) -> Profile:
    """Return the memory in use: by stack if the process was started with tracemalloc, otherwise by type."""
    if tracemalloc.is_tracing():
        return await asyncio.to_thread(lambda: _by_stack(tracemalloc.take_snapshot(), main))
    census = await take_census()
    samples = tuple(
        Sample((StackFrame(f"{kind.__module__}.{kind.__qualname__}"),), (), (count, size, count, size))
        for kind, (count, size) in census.by_type.items()
    )
    return Profile(_UNITS, samples, (_BY_TYPE, _LASTING, *((_CUT,) if census.cut else ())), main)


async def allocation_profile(seconds: float, main: str) -> Profile:
    """Return memory allocated in the next seconds and still in use at their end, by stack; slows the process down."""
    if tracemalloc.is_tracing():
        before = await heap_profile(main)
        await asyncio.sleep(seconds)
        return (await heap_profile(main)).since(before)
    tracemalloc.start(_FRAMES)
    try:
        early = await _sleep_while_small(seconds)
        snapshot = await asyncio.to_thread(tracemalloc.take_snapshot)
    finally:
        tracemalloc.stop()  # at once: the following code allocates a lot
    profile = await asyncio.to_thread(_by_stack, snapshot, main)
    return replace(profile, comments=(*profile.comments, _EARLY)) if early else profile


async def _sleep_while_small(seconds: float) -> bool:
    """Sleep; return True if it ended early because of the traces."""
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
def _function(module: str, file: str, line: int) -> StackFrame:
    """Return the innermost function that contains a line of a file."""
    around = [one for one in _functions(module) if one.file == file and one.first_line <= line <= one.line]
    if not around:
        return StackFrame(f"line {line}", file, line, line)
    return max(around, key=lambda one: one.first_line)._replace(line=line)


@cache
def _functions(module: str) -> tuple[StackFrame, ...]:
    """Return each function of a loaded module with its first and last line; empty if the loader has no code."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    read = getattr(spec.loader, "get_code", None) if spec is not None else None
    return tuple(_functions_in(read(spec.name))) if spec is not None and read is not None else ()


def _functions_in(code: CodeType | None) -> Iterator[StackFrame]:
    """Yield functions, without lambdas and comprehensions: a line alone cannot distinguish them from their function."""
    for inner in code.co_consts if code is not None else ():
        if isinstance(inner, CodeType):
            if not inner.co_name.startswith("<"):
                last = max((line for _, _, line in inner.co_lines() if line is not None), default=inner.co_firstlineno)
                yield StackFrame(inner.co_qualname, inner.co_filename, last, inner.co_firstlineno)
            yield from _functions_in(inner)
