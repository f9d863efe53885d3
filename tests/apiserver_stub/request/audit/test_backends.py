"""Audit backends: batches and limits, order, waiting requests and lost events."""

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.common.flags.audit import AuditOptions
from apiserver_stub.request.audit import log_backend, open_auditing
from apiserver_stub.request.audit.backends import BatchLimits, Buffer, Mode
from apiserver_stub.request.audit.log_backend import LogBackend
from apiserver_stub.request.audit.log_file import LogFile, Rotation
from apiserver_stub.request.audit.metrics import AuditMetrics
from apiserver_stub.request.audit.webhook_backend import WebhookBackend
from apiserver_stub.storage.worker import Worker
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.parse import FlagSet

LIMITS = BatchLimits(buffer=5, batch=2, bytes=1 << 20, wait=30.0)


def event(number: int, level: str = "Metadata", **more: Any) -> bytes:
    parts = {
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": level, "stage": "Panic", "auditID": str(number),
        "requestURI": "/", "verb": "get", "user": {}, **more, "requestReceivedTimestamp": "2026-01-01T00:00:00.5Z",
    }  # fmt: skip
    return json.dumps(parts, separators=(",", ":")).encode()


def ids(events: Sequence[bytes]) -> list[int]:
    return [int(json.loads(each)["auditID"]) for each in events]


class Metrics(AuditMetrics):
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        super().__init__(self.registry, get_logger("test"))

    def count(self, plugin: str) -> float:
        return self.registry.get_sample_value("apiserver_audit_error_total", {"plugin": plugin}) or 0.0


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


class RecordingSink:
    """Takes batches, `seconds` for each; records the start and content of each."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.taken: list[tuple[float, list[int]]] = []

    async def __call__(self, batch: Sequence[bytes]) -> None:
        self.taken.append((round(asyncio.get_running_loop().time()), ids(batch)))
        await asyncio.sleep(self.seconds)


async def feed(buffer: Buffer, events: Sequence[tuple[float, int]], until: float) -> None:
    """Add events at their times while the buffer runs."""
    loop = asyncio.get_running_loop()
    async with Tasks() as tasks:
        tasks.start(buffer.run(), name="buffer")
        for at, number in events:
            await asyncio.sleep(at - loop.time())
            buffer.add(event(number))
        await asyncio.sleep(until - loop.time())


@pytest.mark.virtual
async def test_batch_is_sent_when_full_or_after_wait(metrics: Metrics) -> None:
    taker = RecordingSink()
    buffer = Buffer(LIMITS, taker, metrics, in_order=False)
    await feed(buffer, [(0, 1), (1, 2), (5, 3), (50, 4), (51, 5), (51, 6)], 100)
    assert taker.taken == [(1, [1, 2]), (35, [3]), (51, [4, 5]), (81, [6])]


@pytest.mark.virtual
async def test_events_beyond_the_buffer_are_dropped_and_counted(metrics: Metrics) -> None:
    taker = RecordingSink()
    buffer = Buffer(LIMITS, taker, metrics, in_order=False)
    for number in range(8):
        buffer.add(event(number))
    assert metrics.count("buffered") == 3
    await feed(buffer, [], 100)
    assert [number for _, batch in taker.taken for number in batch] == [0, 1, 2, 3, 4]


@pytest.mark.virtual
async def test_batches_are_throttled(metrics: Metrics) -> None:
    taker = RecordingSink()
    limits = BatchLimits(buffer=100, batch=1, bytes=1 << 20, wait=0.0, rate=0.5, burst=2)
    await feed(Buffer(limits, taker, metrics, in_order=False), [(0, number) for number in range(5)], 20)
    assert [at for at, _ in taker.taken] == [0, 0, 2, 4, 6]


@pytest.mark.virtual
@pytest.mark.parametrize(("in_order", "times"), [(True, [0, 10, 20]), (False, [0, 0, 0])])
async def test_ordered_batches_are_sent_one_at_a_time(metrics: Metrics, in_order: bool, times: list[int]) -> None:
    taker = RecordingSink(seconds=10)
    limits = BatchLimits(buffer=100, batch=1, bytes=1 << 20, wait=0.0)
    await feed(Buffer(limits, taker, metrics, in_order=in_order), [(0, 1), (0, 2), (0, 3)], 25)
    assert taker.taken == [(at, [number]) for number, at in enumerate(times, 1)]


@pytest.mark.virtual
async def test_batch_is_limited_in_bytes(metrics: Metrics) -> None:
    taker = RecordingSink()
    limits = BatchLimits(buffer=100, batch=10, bytes=len(event(1)) * 2, wait=1.0)
    await feed(Buffer(limits, taker, metrics, in_order=True), [(0, number) for number in range(5)], 20)
    assert [batch for _, batch in taker.taken] == [[0, 1], [2, 3], [4]]


@pytest.mark.virtual
async def test_stop_delivers_buffered_and_pending_batches(metrics: Metrics) -> None:
    taker = RecordingSink(seconds=100)
    buffer = Buffer(LIMITS, taker, metrics, in_order=False)
    await feed(buffer, [(0, 1), (0, 2), (1, 3)], 5)
    assert taker.taken == [(0, [1, 2])]
    taker.seconds = 0
    await buffer.drain(10)
    assert [batch for _, batch in taker.taken[1:]] == [[1, 2], [3]]
    assert metrics.count("buffered") == 0


@pytest.mark.virtual
async def test_stop_has_a_timeout(metrics: Metrics) -> None:
    buffer = Buffer(LIMITS, RecordingSink(seconds=1000), metrics, in_order=False)
    for number in range(3):
        buffer.add(event(number))
    await buffer.drain(10)
    assert asyncio.get_running_loop().time() == 10
    assert metrics.count("buffered") == 3


Open = Callable[..., LogBackend]


@pytest.fixture
def log(tmp_path: Path, metrics: Metrics) -> Open:
    def opened(
        mode: Mode, path: str = "", limits: BatchLimits = LIMITS, most: int = 0, *, legacy: bool = False
    ) -> LogBackend:
        return LogBackend(path or str(tmp_path / "audit.log"), Rotation(), legacy, mode, limits, most, metrics)

    return opened


async def test_blocking_mode_waits_for_all_earlier_events(log: Open, tmp_path: Path) -> None:
    backend = log(Mode.BLOCKING)
    for number in range(1, 100, 3):
        assert backend.accept(event(number), wait=False) is None
        waiting = [backend.accept(event(number + more), wait=True) for more in (1, 2)]
        assert [await one for one in waiting if one is not None] == [True, True]
        lines = (tmp_path / "audit.log").read_bytes().splitlines()
        assert ids(lines) == list(range(1, number + 3))
    await backend.close()


async def test_fast_writes_are_done_on_the_loop(log: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow write, as on a failing disk, makes the thread write until the disk is fast again."""
    writers: list[bool] = []
    write, nanoseconds = LogFile.write, [0]

    def noted(self: LogFile, lines: Sequence[bytes]) -> dict[int, str]:
        writers.append(threading.current_thread() is threading.main_thread())
        nanoseconds[0] += 3_000_000 if len(writers) == 3 else 100_000
        return write(self, lines)

    monkeypatch.setattr(LogFile, "write", noted)
    monkeypatch.setattr(log_backend, "_QUICK_IN_TURN", 2)
    monkeypatch.setattr(log_backend, "elapsed_nanoseconds", lambda: nanoseconds[0])
    backend = log(Mode.BLOCKING)
    for number in range(6):
        waiting = backend.accept(event(number), wait=True)
        assert waiting is not None
        assert await waiting
    await backend.close()
    assert writers == [False, True, True, False, False, True]


async def test_unread_pipe_blocks_no_others(log: Open, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "audit.log")
    reader = os.open(tmp_path / "audit.log", os.O_RDONLY | os.O_NONBLOCK)
    backend = log(Mode.BLOCKING)
    waiting = [backend.accept(event(number, userAgent="x" * 4000), wait=True) for number in range(40)]
    await asyncio.sleep(0)
    assert not all(one.done() for one in waiting if isinstance(one, asyncio.Future))
    got = b""
    while got.count(b"\n") < 40:
        with contextlib.suppress(BlockingIOError):
            got += os.read(reader, 1 << 16)
        await asyncio.sleep(0)
    assert ids(got.splitlines()) == list(range(40))
    await backend.close()
    os.close(reader)


@pytest.mark.virtual
async def test_virtual_time_waits_for_writer_thread(log: Open) -> None:
    backend = log(Mode.BLOCKING)
    for number in range(20):
        waiting = backend.accept(event(number), wait=True)
        assert waiting is not None
        assert await waiting
    assert asyncio.get_running_loop().time() == 0
    await backend.close()


async def test_single_event_is_written_without_waiter(log: Open, tmp_path: Path) -> None:
    backend = log(Mode.BLOCKING)
    backend.accept(event(1), wait=False)
    async with asyncio.timeout(5):
        while not (tmp_path / "audit.log").read_bytes():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)
    await backend.close()


async def test_canceled_request_loses_no_event(log: Open, tmp_path: Path) -> None:
    backend = log(Mode.BLOCKING)
    first, second = (backend.accept(event(number), wait=True) for number in (1, 2))
    assert isinstance(first, asyncio.Future)
    assert second is not None
    first.cancel()
    assert await second
    assert ids((tmp_path / "audit.log").read_bytes().splitlines()) == [1, 2]
    await backend.close()


async def test_stop_writes_events_without_waiter(log: Open, tmp_path: Path) -> None:
    for mode in (Mode.BLOCKING, Mode.BATCH):
        backend = log(mode)
        for number in range(3):
            backend.accept(event(number), wait=False)
        await backend.close()
    assert ids((tmp_path / "audit.log").read_bytes().splitlines()) == [0, 1, 2] * 2


async def test_full_disk_is_counted_and_reported_to_waiter(log: Open, metrics: Metrics) -> None:
    backend = log(Mode.BLOCKING_STRICT, "/dev/full")
    assert backend.strict
    waiting = backend.accept(event(1), wait=True)
    assert waiting is not None
    assert await waiting is False
    assert metrics.count("log") == 1
    await backend.close()


async def test_standard_output_can_be_the_log(log: Open, capfd: pytest.CaptureFixture[str]) -> None:
    backend = log(Mode.BLOCKING, "-", legacy=True)
    waiting = backend.accept(event(1), wait=True)
    assert waiting is not None
    assert await waiting
    assert capfd.readouterr().out.startswith("2026-01-01T00:00:00.5Z AUDIT: id=")
    await backend.close()


async def test_oversized_event_is_truncated_or_dropped(log: Open, tmp_path: Path, metrics: Metrics) -> None:
    backend = log(Mode.BATCH, most=400)
    backend.accept(event(1, "Request", requestObject={"a": "x" * 1000}), wait=True)
    backend.accept(event(2, "Metadata", userAgent="x" * 1000), wait=True)
    backend.accept(event(3, "Request", userAgent="x" * 1000), wait=True)
    await backend.close()
    (found,) = map(json.loads, (tmp_path / "audit.log").read_bytes().splitlines())
    assert (found["auditID"], found["annotations"]) == ("1", {"audit.k8s.io/truncated": "true"})
    assert "requestObject" not in found
    assert metrics.count("truncate") == 2


class Server:
    """Accepts documents, or fails."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []
        self.fails = False
        self.closed = False

    async def send(self, document: bytes) -> None:
        await asyncio.sleep(1)
        if self.fails:
            raise ServiceUnavailable("nobody there")
        self.lists.append([int(each["auditID"]) for each in json.loads(document)["items"]])

    async def close(self) -> None:
        self.closed = True


@pytest.mark.virtual
async def test_webhook_receives_batches(metrics: Metrics) -> None:
    server = Server()
    backend = WebhookBackend(server, Mode.BATCH, LIMITS, 0, metrics)
    assert [backend.accept(event(number), wait=True) for number in range(3)] == [None] * 3
    async with Tasks() as tasks:
        tasks.start(backend.run(), name="audit")
        await asyncio.sleep(10)
        assert server.lists == [[0, 1]]
    await backend.close()
    assert (server.lists, server.closed) == ([[0, 1], [2]], True)


@pytest.mark.virtual
@pytest.mark.parametrize("mode", [Mode.BLOCKING, Mode.BLOCKING_STRICT])
async def test_blocking_webhook_sends_each_event_at_once(metrics: Metrics, mode: Mode) -> None:
    server = Server()
    backend = WebhookBackend(server, mode, LIMITS, 0, metrics)
    waiting: Awaitable[bool] | None = backend.accept(event(1), wait=True)
    assert waiting is not None
    assert (await waiting, server.lists) == (True, [[1]])
    server.fails = True
    waiting = backend.accept(event(2), wait=True)
    assert waiting is not None
    assert (await waiting, metrics.count("webhook"), backend.strict) == (False, 1, mode is Mode.BLOCKING_STRICT)
    assert backend.accept(event(3), wait=False) is None
    server.fails = False
    await backend.close()
    assert server.lists == [[1], [3]]


@pytest.mark.virtual
async def test_workers_split_the_batch_rate(tmp_path: Path) -> None:
    (policy := tmp_path / "policy.yaml").write_text(
        '{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}]}'
    )
    flags = [f"--audit-policy-file={policy}", "--audit-webhook-config-file=asked", "--audit-webhook-batch-max-size=1"]
    flags += ["--audit-webhook-batch-throttle-qps=0.5", "--audit-webhook-batch-throttle-burst=3"]
    options = FlagSet(AuditOptions).parse(flags)[AuditOptions]
    sent = []
    for number in range(2):
        runtime, server = Runtime("test"), Server()
        worker = Worker(number, 2)
        log = runtime.log("audit")
        auditing = open_auditing(options, runtime.registry, log, lambda *_, server=server: server, worker)
        (backend,) = auditing._backends
        for one in range(9):
            backend.accept(event(one), wait=False)
        async with Tasks() as tasks:
            tasks.start(auditing.run(), name="audit")
            await asyncio.sleep(2)
            sent.append(len(server.lists))
            await asyncio.sleep(4)
            sent.append(len(server.lists))
    assert sent == [2, 3, 1, 2]
