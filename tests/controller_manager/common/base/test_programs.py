"""External programs: output, exit status and cleanup."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.programs import ProgramResult, TooMuchOutputError, run_program
from controller_manager.common.base.tasks import Tasks


class Held:
    """A pipe that a script and its child processes hold open with `exec 3>name`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.hold = f"exec 3>{path}"
        self.end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self.end, True)

    async def wait_until_closed(self) -> None:
        """Return once all holders have ended."""
        assert await asyncio.to_thread(os.read, self.end, 1) == b""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    pipe = Held(tmp_path / "held")
    yield pipe
    os.close(pipe.end)


async def run(script: str, seconds: float = 60.0, longest: int = 100) -> ProgramResult:
    return await run_program(["/bin/sh", "-c", script], seconds=seconds, longest=longest)


@pytest.mark.virtual
async def test_output_and_errors_are_ordered_in_virtual_time() -> None:
    async with Tasks() as tasks:
        tasks.start(asyncio.sleep(5), name="a timer")
        assert await run("echo a; echo b >&2; echo c; exit 3") == ProgramResult(3, b"a\nb\nc\n")
        assert await run("kill -9 $$") == ProgramResult(-9, b"")
        assert await run("cat") == ProgramResult(0, b"")
        assert monotonic() == 0


@pytest.mark.virtual
async def test_missing_program_raises_file_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        await run_program(["/nowhere/program"], seconds=60, longest=1)


@pytest.mark.virtual
async def test_hanging_program_is_killed_with_its_children(held: Held) -> None:
    with pytest.raises(TimeoutError):
        await run(f"{held.hold}; sleep 1000 &")
    assert 60 <= monotonic() < 70
    await held.wait_until_closed()


@pytest.mark.virtual
async def test_program_with_too_much_output_is_killed(held: Held) -> None:
    assert len((await run("head -c 100 /dev/zero")).output) == 100
    with pytest.raises(TooMuchOutputError):
        await run(f"{held.hold}; yes")
    await held.wait_until_closed()


@pytest.mark.virtual
async def test_program_of_cancelled_caller_is_killed(held: Held, tmp_path: Path) -> None:
    began = tmp_path / "began"
    os.mkfifo(began)
    async with Tasks() as tasks:
        tasks.start(run(f"{held.hold}; sleep 1000 & echo >{began}; wait"), name="a program")
        await asyncio.to_thread(began.read_bytes)
    await held.wait_until_closed()


@pytest.mark.virtual
@pytest.mark.parametrize("turns", range(2, 7))
async def test_program_cancelled_while_starting_is_killed(held: Held, tmp_path: Path, turns: int) -> None:
    began = tmp_path / "began"
    os.mkfifo(began)
    async with Tasks() as tasks:
        task = tasks.start(run(f"{held.hold}; sleep 1000 & echo >{began}; wait"), name="a program")
        for _ in range(turns):
            await asyncio.sleep(0)
        began.read_bytes()  # blocks the loop until the program runs
        task.cancel()
    await held.wait_until_closed()


@pytest.mark.virtual
async def test_program_gets_environment_and_error_stream() -> None:
    words = ("/bin/sh", "-c", "echo $WORD; echo wrong >&2")
    result = await run_program(
        words, seconds=60, longest=100, environment={"WORD": "said"}, errors=asyncio.subprocess.DEVNULL
    )
    assert result == ProgramResult(0, b"said\n")
