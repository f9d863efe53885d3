"""Stacks of suspended coroutines, whatever they wait through, and the names of places."""

import asyncio
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from types import CodeType

import pytest

from controller_manager.base.tasks import Tasks
from controller_manager.serving.pprof import stacks
from controller_manager.serving.pprof.stacks import Places, running_stack, waiting_stack


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
async def test_the_chain_of_what_is_waited_for(work, names: list[str]):
    coroutine = work()
    async with Tasks() as tasks:
        tasks.start(coroutine, name="waits")
        await asyncio.sleep(0)
        found = waiting_stack(coroutine)
    assert [function for function, *_ in found] == names
    assert found[-1][2] > work.__code__.co_firstlineno


async def test_a_chain_goes_through_other_modules():
    coroutine = through_a_context()
    async with Tasks() as tasks:
        tasks.start(coroutine, name="waits")
        await asyncio.sleep(0)
        names = [frame.function for frame in Places().stack(waiting_stack(coroutine))]
    assert "contextlib._AsyncGeneratorContextManager.__aenter__" in names
    assert [name.rpartition(".")[2] for name in names][:2] == ["forever", "context"]


async def test_what_has_not_begun_or_has_ended_has_a_short_stack():
    coroutine = forever()
    assert [function for function, *_ in waiting_stack(coroutine)] == ["forever"]
    coroutine.close()
    assert waiting_stack(coroutine) == ()


async def dig(depth: int) -> None:
    await (dig(depth - 1) if depth else forever())


async def test_a_deep_stack_keeps_its_innermost_frames():
    coroutine = dig(2 * stacks.DEEPEST)
    async with Tasks() as tasks:
        tasks.start(coroutine, name="deep")
        await asyncio.sleep(0)
        found = waiting_stack(coroutine)
    assert len(found) == stacks.DEEPEST
    assert found[0][0] == "forever"


def fall(depth: int) -> stacks.RawStack:
    return fall(depth - 1) if depth else running_stack(sys._getframe())


def test_so_does_one_of_running_code():
    found = fall(2 * stacks.DEEPEST)
    assert len(found) == stacks.DEEPEST
    assert {function for function, *_ in found} == {"fall"}


class Sample:
    @property
    def one(self) -> CodeType:
        return Sample.one.fget.__code__

    @classmethod
    def two(cls) -> CodeType:
        return cls.two.__func__.__code__

    @staticmethod
    def three() -> CodeType:
        def inner() -> CodeType:
            return inner.__code__

        return inner()


@pytest.mark.parametrize("code", [fall.__code__, Sample().one, Sample.two(), Sample.three()])
def test_a_line_tells_its_function(code: CodeType):
    places = Places()
    places._modules[__file__] = "tests_of_stacks"
    sys.modules["tests_of_stacks"] = module = type(sys)("tests_of_stacks")
    vars(module).update({"fall": fall, "Sample": Sample})
    try:
        last = max(line for _, _, line in code.co_lines() if line)
        frame = places.line(__file__, last)
    finally:
        del sys.modules["tests_of_stacks"]
    assert frame == (f"tests_of_stacks.{code.co_qualname}", __file__, last, code.co_firstlineno)
    assert places.line("/nowhere/else.py", 7) == ("else:7", "/nowhere/else.py", 7, 7)
