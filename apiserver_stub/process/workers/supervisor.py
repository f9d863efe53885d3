"""Starts, supervises and stops the processes of an API server.

Each process has a pipe as standard input and ends when it closes, so no process survives the supervisor.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from apiserver_stub.common.flags import ServingOptions, StorageOptions
from apiserver_stub.process.pki.folders import close_folders
from apiserver_stub.process.workers import control
from apiserver_stub.process.workers.metric_sums import MetricSums, report
from apiserver_stub.process.workers.socket_folder import socket_folder
from apiserver_stub.storage.shared.messages import MessageConnection
from apiserver_stub.storage.shared.revision_page import new_page_file
from apiserver_stub.storage.worker import METRICS
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family
from controller_manager.common.base.programs import started
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks, all_of
from controller_manager.common.component.process import run_process
from controller_manager.common.component.signals import LONGEST_STOP, obey_signals
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.listening import listen

_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds before a process is started again
_MOST_DEATHS = 10  # consecutive failures, each within the settling time
_SETTLED = 60.0  # seconds
_REPORT = 2.0  # seconds for a process to report its metrics
_BACKLOG = 128
_HUNG, _HUNG_AT_START = 20, 300  # missed beats before a process is killed; reading the store at the start may take long
_RESTARTS = Family(
    "apiserver_worker_restarts_total",
    "Number of restarts of server processes, by reason: exited, killed, or hung.",
    "counter",
    ("process", "reason"),
)


def run(program: str, options: Parsed, argv: Sequence[str]) -> int:
    """Serve with several processes until a signal arrives; return the exit status. `argv` are the flags."""
    return run_process(program, options, partial(_supervise, options, argv))


async def _supervise(options: Parsed, argv: Sequence[str], runtime: Runtime) -> int:
    backend, serving = options[StorageOptions].storage_backend, options[ServingOptions]
    if backend == "memory":
        raise CannotStart("--workers: several processes need --storage-backend=sqlite or etcd")
    try:
        close_folders(options)
    except (OSError, ValueError) as error:
        raise CannotStart(str(error)) from error
    listener = listen(serving.bind_address, serving.secure_port, share_port=serving.permit_port_sharing)
    longest = serving.shutdown_delay_duration + LONGEST_STOP
    with socket_folder() as path:
        store = path if backend == "sqlite" else None
        return await Supervisor(serving.workers, argv, listener, store, longest, runtime.log("supervisor")).run()


class Child:
    """One of the processes: its connection, and how often in a row it died."""

    def __init__(self, number: int | None) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.connection: MessageConnection[control.Message] | None = None
        self.ready = asyncio.Event()
        self.may_begin = False
        self.deaths = 0
        self.missed = 0
        """The beats that it has missed since its last one."""
        self.patience = _HUNG_AT_START
        """The beats that it may miss."""

    @property
    def name(self) -> str:
        """Return the name of the process."""
        return "store" if self.number is None else f"worker-{self.number}"

    @property
    def is_alive(self) -> bool:
        """Return whether the process is running."""
        return self.process is not None and self.process.returncode is None

    def kill(self) -> None:
        """Kill the process."""
        if self.process is not None:
            self.process.kill()

    def send(self, message: control.Message) -> None:
        """Send a message if the process is connected."""
        if self.connection is not None:
            self.connection.send(message)


class Supervisor:
    """Supervises the owner of the store and `count` workers with the flags `argv`.

    `listener` accepts clients; `store` is the path of the store's socket, None if no process owns the store. A process
    that dies is restarted after a pause. Ten deaths in a row, each within a minute, or a failure before it was first
    ready, end all. A ready process without a beat for twenty seconds (while the supervisor itself ran) is killed.
    """

    def __init__(
        self, count: int, argv: Sequence[str], listener: socket.socket, store: Path | None, longest: float, log: Logger
    ) -> None:
        self._count = count
        self._argv = [*argv, f"--secure-port={listener.getsockname()[1]}"]
        self._listener = listener
        self._longest = longest
        self._log = log
        self._page = new_page_file()
        self._path = "" if store is None else str(store)
        self._store = socket.socket(socket.AF_UNIX)
        self._owner: Child | None = None
        if store is not None:
            self._store.bind(self._path)
            self._store.listen(_BACKLOG)
            self._owner = Child(None)
        self._workers = [Child(number) for number in range(count)]
        self._children = self._workers if self._owner is None else [self._owner, *self._workers]
        self._registry = CollectorRegistry()
        self._restarts = Counters(_RESTARTS, self._registry)
        self._sums: dict[str, MetricSums] = {}
        self._reports: dict[tuple[str, int], asyncio.Future[Sequence[control.FamilyReport]]] = {}
        self._numbers = 0
        self._stopping: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks()

    async def run(self) -> int:
        """Start, supervise and stop all processes; return the exit status."""
        obey_signals(self._stop, longest=self._longest + LONGEST_STOP)
        try:
            async with Tasks() as self._tasks:
                for child in self._children:
                    self._tasks.start(self._keep(child), name=child.name)
                self._tasks.start(self._begin(), name="start")
                self._tasks.start(self._listen_to_beats(), name="heartbeats")
                reason = await asyncio.shield(self._stopping)
                self._log.info("stopping", reason=reason)
                await self._stop_all()
        except BaseExceptionGroup as group:
            await self._stop_all()
            raise group.exceptions[0] from None
        return 0

    def _stop(self, reason: str) -> None:
        if not self._stopping.done():
            self._stopping.set_result(reason)

    async def _begin(self) -> None:
        """Start the first worker, which creates shared objects, then the others."""
        first, *others = self._workers
        if self._owner is not None:
            await self._owner.ready.wait()
        self._let_begin(first)
        await first.ready.wait()
        for worker in others:
            self._let_begin(worker)
        for worker in others:
            await worker.ready.wait()
        self._log.info("ready", processes=len(self._children))

    def _let_begin(self, child: Child) -> None:
        child.may_begin = True
        child.send(control.Begin())

    async def _listen_to_beats(self) -> None:
        """Kill what shows no life."""
        while True:
            await asyncio.sleep(control.BEAT)
            for child in self._children:
                child.missed += 1
                if child.missed == child.patience and child.is_alive:
                    self._log.error("a process hangs, and is killed", process=child.name)
                    child.kill()

    async def _keep(self, child: Child) -> None:
        """Restart a process until all stop. Raises `CannotStart`."""
        loop, pause = asyncio.get_running_loop(), _PAUSE
        while not self._stopping.done():
            born = loop.time()
            status = await self._live(child)
            if self._stopping.done():
                return
            if not child.ready.is_set() and status >= 0:
                raise CannotStart(f"{child.name} {_how(status)} before it was ready")
            if loop.time() - born >= _SETTLED:
                child.deaths, pause = 0, _PAUSE
            child.deaths += 1
            if child.deaths >= _MOST_DEATHS:
                raise CannotStart(f"{child.name} {_how(status)}, for the {child.deaths}th time in a row")
            hung = child.missed >= child.patience
            self._restarts.add(child.name, "hung" if hung else "killed" if status < 0 else "exited")
            self._log.error("process exited; restarting it", process=child.name, how=_how(status), pause=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _live(self, child: Child) -> int:
        """Start a process; return how it ended."""
        child.missed, child.patience = 0, _HUNG_AT_START
        ours, theirs = socket.socketpair()
        listener = self._store if child.number is None else self._listener
        files = theirs.fileno(), self._page, listener.fileno()
        place = control.Place(child.number, self._count, *files, self._path)
        module = "apiserver_stub.process.workers.process"
        words = (
            "-m",
            "controller_manager.common.base.tethered",
            module,
            msgspec.json.encode(place).decode(),
            *self._argv,
        )
        child.process = await started(
            asyncio.create_subprocess_exec(
                sys.executable, *words, stdin=asyncio.subprocess.PIPE, pass_fds=files, start_new_session=True
            )
        )
        theirs.close()
        child.connection = MessageConnection(control.decode, partial(self._take, child), partial(_lost, child))
        connection = child.connection
        await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=ours)
        if child.may_begin:
            child.send(control.Begin())
        status = await child.process.wait()
        connection.close()
        self._forget(child)
        return status

    def _forget(self, child: Child) -> None:
        for sums in self._sums.values():
            sums.gone(child.name)
        for key in [key for key in self._reports if key[0] == child.name]:
            self._reports.pop(key).cancel()

    def _take(self, child: Child, message: control.Message) -> None:
        match message:
            case control.Ready():
                child.ready.set()
                child.patience = _HUNG
            case control.Beat():
                child.missed = 0
            case control.Wanted(number, page):
                self._tasks.start(self._gather(child, number, page), name="metrics")
            case control.Report(number, families):
                waiting = self._reports.pop((child.name, number), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(families)

    async def _gather(self, asker: Child, number: int, page: str) -> None:
        """Send the metrics of all processes to `asker`. Late processes are included with their last report."""
        children = [child for child in self._children if child.connection is not None]
        sums = self._sums.setdefault(page, MetricSums())
        if page == METRICS:
            sums.reported("supervisor", await report(self._registry))
        await all_of(*(self._report(child, page, sums) for child in children))
        asker.send(control.Report(number, sums.families()))

    async def _report(self, child: Child, page: str, sums: MetricSums) -> None:
        self._numbers += 1
        number = self._numbers
        waiting: asyncio.Future[Sequence[control.FamilyReport]] = asyncio.get_running_loop().create_future()
        self._reports[child.name, number] = waiting
        child.send(control.Wanted(number, page))
        try:
            async with asyncio.timeout(_REPORT):
                await asyncio.wait((waiting,))
        except TimeoutError:
            self._reports.pop((child.name, number), None)
        if waiting.done() and not waiting.cancelled():
            sums.reported(child.name, waiting.result())

    async def _stop_all(self) -> None:
        """Stop the workers first, so that they can finish their requests, then the owner of the store."""
        self._stop("a process failed")
        await all_of(*(self._end(worker) for worker in self._workers))
        if self._owner is not None:
            await self._end(self._owner)

    async def _end(self, child: Child) -> None:
        process = child.process
        if process is None or not child.is_alive:
            return
        process.terminate()
        try:
            async with asyncio.timeout(self._longest):
                await process.wait()
        except TimeoutError:
            self._log.error("process does not stop; killing it", process=child.name)
            process.kill()
            await process.wait()


def _lost(child: Child) -> None:
    child.connection = None


def _how(status: int) -> str:
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
