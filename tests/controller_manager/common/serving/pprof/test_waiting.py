"""Stacks of suspended coroutines."""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager

import pytest

from controller_manager.common.base import stacks
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.pprof.profile import Modules
from controller_manager.common.serving.pprof.tasks import waiting_stack


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def numbers() -> AsyncIterator[int]:
    yield 1
    await forever()


async def through_a_generator() -> None:
    async for _ in numbers():
        pass


async def through_anext() -> None:
    stream = numbers()
    await anext(stream)
    await anext(stream, None)


class Awaited:
    def __await__(self) -> Generator[object, None, None]:
        yield from forever().__await__()


async def through_an_object() -> None:
    await Awaited()


@asynccontextmanager
async def context() -> AsyncIterator[None]:
    await forever()
    yield


async def through_a_context() -> None:
    async with context():
        pass


async def closing() -> None:
    stream = stubborn()
    await anext(stream)
    await stream.aclose()


async def stubborn() -> AsyncIterator[int]:
    try:
        yield 1
    finally:
        await forever()


@pytest.mark.parametrize(
    ("work", "names"),
    [
        (forever, ["forever"]),
        (through_a_generator, ["forever", "numbers", "through_a_generator"]),
        (through_anext, ["forever", "numbers", "through_anext"]),
        (through_an_object, ["forever", "Awaited.__await__", "through_an_object"]),
        (closing, ["forever", "stubborn", "closing"]),
    ],
)
async def test_waiting_stack_follows_awaited_objects(work, names: list[str]):
    coroutine = work()
    async with Tasks() as tasks:
        tasks.start(coroutine, name="waits")
        await asyncio.sleep(0)
        found = waiting_stack(coroutine)
    assert [function for function, *_ in found] == names
    assert found[-1][2] > work.__code__.co_firstlineno


async def test_waiting_stack_crosses_modules():
    coroutine = through_a_context()
    async with Tasks() as tasks:
        tasks.start(coroutine, name="waits")
        await asyncio.sleep(0)
        names = [Modules().name(frame) for frame in waiting_stack(coroutine)]
    assert "contextlib._AsyncGeneratorContextManager.__aenter__" in names
    assert [name.rpartition(".")[2] for name in names][:2] == ["forever", "context"]


async def test_unstarted_or_closed_coroutine_has_short_stack():
    coroutine = forever()
    assert [function for function, *_ in waiting_stack(coroutine)] == ["forever"]
    coroutine.close()
    assert waiting_stack(coroutine) == ()


async def dig(depth: int) -> None:
    await (dig(depth - 1) if depth else forever())


async def test_deep_stack_keeps_its_innermost_frames():
    coroutine = dig(2 * stacks.DEEPEST)
    async with Tasks() as tasks:
        tasks.start(coroutine, name="deep")
        await asyncio.sleep(0)
        found = waiting_stack(coroutine)
    assert len(found) == stacks.DEEPEST
    assert found[0][0] == "forever"
