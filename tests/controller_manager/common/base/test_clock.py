"""Which event loop supplies the time: the running one, or the one that a thread works for."""

import asyncio
import threading

from controller_manager.common.base.clock import loop_served, monotonic, running_loop, working_for


async def test_running_loop_is_the_current_one():
    loop = asyncio.get_running_loop()
    assert (running_loop(), loop_served()) == (loop, loop)


def test_outside_of_a_loop_there_is_no_loop():
    assert (running_loop(), loop_served()) == (None, None)


async def test_thread_uses_clock_of_the_loop_it_works_for():
    loop, seen = asyncio.get_running_loop(), []

    def work() -> None:
        with working_for(loop):
            seen.append((running_loop(), loop_served()))
            seen.append(abs(monotonic() - loop.time()) < 60)
            other = threading.Thread(target=lambda: seen.append(loop_served()))
            other.start()
            other.join()
        seen.append(loop_served())

    await asyncio.to_thread(work)
    assert seen == [(None, loop), True, None, None]
