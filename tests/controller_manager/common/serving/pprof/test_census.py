"""A census of all objects, taken in a separate process because a test process has millions."""

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Pod
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.pprof.heap import take_census

MANY = 3_000
Counts = dict[str, tuple[int, int]]


class Untracked(msgspec.Struct, gc=False):
    text: str
    more: Any = None


@dataclass
class Holder:
    held: dict[str, Any]


class Owned:
    pass


async def census() -> Counts:
    found = await take_census()
    assert not found.cut
    return {kind.__name__: counts for kind, counts in found.by_type.items()}


async def untracked() -> list[Counts]:
    before = await census()
    holder = Holder({str(number): Untracked(f"text {number}", Untracked("inner")) for number in range(MANY)})
    assert not gc.is_tracked(holder.held)
    return [before, await census()]


async def frozen() -> Counts:
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
            return await census()
        finally:
            gc.unfreeze()


async def shared() -> Counts:
    gc.collect()
    one, alone = Owned(), [Owned()]
    held = [one] * MANY
    found = await census()
    assert len(held) + len(alone) == MANY + 1
    return found


async def raw() -> Counts:
    pods = [Pod.decode(b'{"metadata":{"name":"a","managedFields":[]}}') for _ in range(10)]
    found = await census()
    assert len(pods) == 10
    return found


async def turns() -> int:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Tasks() as tasks:
        tasks.start(turn(), name="turns")
        await census()
    return turns


async def bounded() -> bool:
    return (await take_census(most=2_000)).cut


TAKEN: tuple[Callable[[], Coroutine[Any, Any, Any]], ...] = (untracked, frozen, shared, raw, turns, bounded)


async def take() -> dict[str, Any]:
    return {one.__name__: await one() for one in TAKEN}


@pytest.fixture(scope="module")
def taken() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(subprocess.check_output([sys.executable, __file__]))
    return found


def test_untracked_objects_are_counted(taken):
    before, after = taken["untracked"]
    count, size = after["Untracked"]
    assert count - before.get("Untracked", (0, 0))[0] == 2 * MANY
    assert size >= count * sys.getsizeof(Untracked("x"))
    assert after["str"][0] - before["str"][0] > MANY  # other strings were freed in between


def test_objects_frozen_at_start_are_counted(taken):
    assert taken["frozen"]["Owned"][0] == MANY


def test_shared_objects_are_counted_once(taken):
    assert taken["shared"]["Owned"][0] == 2


def test_census_yields_to_other_tasks(taken):
    assert taken["turns"] > 20


def test_objects_with_raw_bytes_have_plausible_size(taken):
    assert taken["raw"]["Raw"][1] < 1_000_000
    assert taken["raw"]["Pod"][0] >= 10


def test_census_ends_at_its_bound(taken):
    assert taken["bounded"]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(take())))
