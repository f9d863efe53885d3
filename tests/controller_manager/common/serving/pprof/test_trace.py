"""Traces of tasks over time."""

import asyncio
import time

from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.pprof import trace
from controller_manager.common.serving.pprof.trace import trace_profile

MS = 1_000_000


async def rest() -> None:
    await asyncio.sleep(60)


async def alternate() -> None:
    while True:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0.05)


def describe(task: str) -> dict[str, str]:
    return {"task": task}


async def test_trace_contains_stretches_in_order():
    for seconds in (0.5, 2.0, 8.0):  # a busy machine sometimes leaves too few samples
        began = time.monotonic_ns()
        async with Tasks() as tasks:
            tasks.start(rest(), name="rests")
            tasks.start(alternate(), name="alternates")
            profile = await trace_profile(seconds, describe)
        took = time.monotonic_ns() - began
        samples = [(dict(one.labels), one) for one in profile.samples]
        states = [labels["state"] for labels, _ in samples if labels.get("task") == "alternates"]
        turns = [state for state, before in zip(states, ["", *states], strict=False) if state != before]
        if len(turns) >= 5:
            break
    assert len(turns) >= 5
    assert {"running", "waiting"} <= set(states)

    starts = [float(labels["start"].removesuffix(" ms")) for labels, _ in samples]
    assert starts == sorted(starts)

    (ready, waits) = [(labels, one) for labels, one in samples if labels.get("task") == "rests"]
    assert (ready[0]["state"], waits[0]["state"], waits[0]["waits_for"]) == ("ready", "waiting", "Future")
    assert 100 * MS < waits[1].values[1] <= took
    assert waits[1].stack[-1].function == "rest"


async def test_trace_ends_at_its_bound(monkeypatch):
    monkeypatch.setattr(trace, "_MOST_STRETCHES", 3)
    async with Tasks() as tasks:
        for number in range(9):
            tasks.start(rest(), name=f"rests {number}")
        profile = await trace_profile(60, describe)
    assert len(profile.samples) == 3
    assert any("ended early" in comment for comment in profile.comments)
