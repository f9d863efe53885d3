"""Starts, supervises and stops the child processes of a cluster."""

import asyncio
import fcntl
import os
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from apiserver_stub.process.pki import MARKS
from controller_manager.app import ENTRY_POINTS
from controller_manager.cluster_up.children import API_SERVER, Child, children_of, pod_runners
from controller_manager.cluster_up.kubeconfigs import ManagerKubeconfigs
from controller_manager.cluster_up.options import ClusterOptions
from controller_manager.cluster_up.probes import (
    POLL_SECONDS,
    answers_ready,
    free_ports,
    is_free,
    leading_port,
    without_verifying,
)
from controller_manager.cluster_up.restarts import Restarts
from controller_manager.cluster_up.watch import Screen, watch
from controller_manager.common.api.errors import ApiError
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.errors import CannotStart, describe
from controller_manager.common.base.files import private_folder
from controller_manager.common.base.programs import started
from controller_manager.common.base.tasks import Tasks, all_of
from controller_manager.common.component.signals import obey_signals
from controller_manager.common.serving.listening import listener_on
from controller_manager.common.transport import kubeconfig
from controller_manager.common.transport.transport import TransportError

if TYPE_CHECKING:  # loads the HTTP library
    from controller_manager.framework.client.client import Client

T = TypeVar("T")

_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_RESTARTED = 0.2  # seconds between readiness probes of a restarted process
_LAST_LINES = 12
_LOCK = "cluster-up.lock"


class LocalCluster:
    """The child processes of a cluster.

    Their standard input is a pipe, and they end when it closes, so they end together with this process.
    """

    def __init__(self, options: ClusterOptions, screen: Screen) -> None:
        self._options = options = _with_ports(options)
        self._screen = screen
        self._say = say = screen.say
        self._folder = Path(options.data_dir).absolute()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._children = {child.name: child for child in children_of(options, self._folder)}
        self._logged: dict[str, int] = {}
        managers = [f"manager-{number}" for number in range(options.managers)]
        self._kubeconfigs = ManagerKubeconfigs(self._folder, managers, f"https://127.0.0.1:{options.api_port}", say)
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Start everything, wait for a signal or a fatal failure, stop in order; return the exit status."""
        obey_signals(lambda _: self._stop.set(), longest=3 * _STOP_SECONDS)
        began = monotonic()
        lock = self._prepare()
        try:
            await self._start()
            if not self._stop.is_set():
                self._say(f"ready after {monotonic() - began:.1f} s; in another shell:")
                self._say(f"  export KUBECONFIG={self._folder / 'admin.kubeconfig'}")
                await self._say_page()
            return await self._watch_over()
        finally:
            self._screen.close()
            await self._stop_all()
            os.close(lock)

    def _prepare(self) -> int:
        """Check everything that can fail before a process starts or a file changes; return the lock of the folder."""
        options = self._options
        if options.watch and not (sys.stdout.isatty() and options.managers):
            raise CannotStart("--watch: needs a terminal and at least one manager (--managers)")
        try:
            private_folder(self._folder, MARKS)
            lock = _lock(self._folder)
        except OSError as error:
            raise CannotStart(f"--data-dir: {self._folder} is not a writable folder: {error.strerror}") from None
        except ValueError as error:
            raise CannotStart(f"--data-dir: {error}") from None
        ports = [options.api_port, *(options.manager_port + n for n in range(options.managers))]
        for port in ports:
            if not is_free(port):
                name = "--api-port" if port == options.api_port else "--manager-port"
                owner = listener_on(port) or "another program"
                raise CannotStart(f"{name}: port {port} on 127.0.0.1 is in use by {owner}; stop that or choose another")
        self._say(f"certificates, kubeconfigs, store and logs in {self._folder}")
        return lock

    async def _start(self) -> None:
        """Start the API server, then the managers, which would otherwise back off while it is not ready.

        The managers' processes load their modules in the meantime.
        """
        tls = without_verifying()
        server, *managers = self._children.values()
        for child in self._children.values():
            await self._launch(child)
        grants = managers and (pod_runners(self._options) or entry_points(group=ENTRY_POINTS))
        await all_of(self._until_ready(server, tls), asyncio.to_thread(_load, controllers=bool(grants)))
        if self._stop.is_set():
            return
        try:
            self._kubeconfigs.write()
        except (OSError, ValueError) as error:
            raise CannotStart(f"the kubeconfigs of the managers cannot be written: {error}") from None
        if grants:
            await self._grant()
        await all_of(*(self._bring_up(manager, tls) for manager in managers))

    @property
    def _managers(self) -> Sequence[Child]:
        return [child for child in self._children.values() if child.name != API_SERVER]

    async def _leading_port(self) -> int:
        return await leading_port([manager.port for manager in self._managers], without_verifying())

    async def _say_page(self) -> None:
        """Print the address of the web page; on a terminal, with a token that opens it."""
        if not self._managers or self._stop.is_set():
            return
        from controller_manager.app.pages.ui import PATH
        from controller_manager.app.viewer import viewer_token

        address = f"https://127.0.0.1:{await self._leading_port()}{PATH}"
        if sys.stdout.isatty():
            address += f"#token={await self._as_admin(viewer_token)}"
        self._say(f"  {address}    # the cluster in a browser, which warns of the certificate")

    async def _grant(self) -> None:
        """Grant declared permissions to controllers without a default role, such as external and virtual-node ones."""
        from controller_manager.app import catalog, permissions

        await self._as_admin(lambda client: permissions.grant(client, catalog.installed()))

    async def _as_admin(self, act: "Callable[[Client], Awaitable[T]]") -> T:
        """Call `act` with an admin client and return its result. Raises CannotStart."""
        from controller_manager.common.transport.http_transport import HttpTransport
        from controller_manager.framework.client.client import Client

        transport = HttpTransport(kubeconfig.load(self._folder / "admin.kubeconfig"))
        try:
            return await act(Client(transport))
        except (ApiError, TransportError, ValueError, ImportError) as error:
            raise CannotStart(f"the accounts of the cluster cannot be set up: {describe(error)}") from None
        finally:
            await transport.close()

    async def _bring_up(self, manager: Child, tls: ssl.SSLContext) -> None:
        self._begin(manager)
        await self._until_ready(manager, tls)

    def _begin(self, manager: Child) -> None:
        """Signal a launched manager to start."""
        stdin = self._processes[manager.name].stdin
        assert stdin is not None
        stdin.write(b"\n")  # if it has already ended, the supervisor notices

    async def _launch(self, child: Child) -> None:
        with child.log.open("ab") as log:
            self._logged[child.name] = log.tell()
            self._processes[child.name] = await started(
                asyncio.create_subprocess_exec(
                    *child.command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
            )

    async def _until_ready(self, child: Child, tls: ssl.SSLContext) -> None:
        process = self._processes[child.name]
        deadline = monotonic() + _START_SECONDS
        while not self._stop.is_set():
            if process.returncode is not None:
                raise CannotStart(self._obituary(child, process.returncode))
            if await self._is_ready(child, tls):
                return
            if monotonic() > deadline:
                raise CannotStart(f"{child.name} is not ready after {_START_SECONDS:.0f} s; its log is {child.log}")
            await asyncio.sleep(POLL_SECONDS)

    async def _is_ready(self, child: Child, tls: ssl.SSLContext) -> bool:
        ready = await answers_ready(child.port, tls)
        if ready:
            self._say(f"{child.name} is ready on https://127.0.0.1:{child.port}, log in {child.log}")
        return ready

    async def _watch_over(self) -> int:
        """Restart failed children; return 1 when the API server or the last manager has ended permanently."""
        async with Tasks() as tasks:
            waiting = {tasks.start(self._supervise(child), name=name): name for name, child in self._children.items()}
            stop = tasks.start(self._stop.wait(), name="stop")
            tasks.start(self._kubeconfigs.keep(), name="kubeconfigs")
            if self._options.watch:
                tasks.start(self._show(), name="watch")
            while True:
                done, _ = await asyncio.wait((stop, *waiting), return_when=asyncio.FIRST_COMPLETED)
                if stop in done:
                    return 0
                for task in done:
                    waiting.pop(task)
                if self._is_over(set(waiting.values())):
                    return 1

    async def _supervise(self, child: Child) -> None:
        """Restart a child whenever it fails; return once it has ended permanently."""
        restarts, tls = Restarts(), without_verifying()
        while True:
            began = monotonic()
            status = await self._processes[child.name].wait()
            self._say(self._obituary(child, status))
            pause = restarts.pause_after(status, monotonic() - began)
            if pause is None:
                self._say(f"{child.name} is not started again")
                return
            self._say(f"{child.name} is started again in {pause:.0f} s")
            await asyncio.sleep(pause)
            await self._launch(child)
            if child.name != API_SERVER:
                self._begin(child)
            await self._until_ready_or_ended(child, tls)

    async def _until_ready_or_ended(self, child: Child, tls: ssl.SSLContext) -> None:
        while self._processes[child.name].returncode is None:
            if await self._is_ready(child, tls):
                return
            await asyncio.sleep(_POLL_RESTARTED)

    async def _show(self) -> None:
        """Show the cluster in the terminal, with admin permissions, until cancelled."""
        from controller_manager.app.pages.ui import STATE_PATH
        from controller_manager.common.transport.http_transport import HttpTransport
        from controller_manager.framework.client.client import Client
        from controller_manager.framework.client.rest_client import Call

        admin = kubeconfig.load(self._folder / "admin.kubeconfig")
        port = await self._leading_port()
        (child,) = (child for child in self._managers if child.port == port)
        authority = b"".join(file.read_bytes() for file in (self._folder / child.name).glob("*.crt"))
        transport = HttpTransport(replace(admin, server=f"https://127.0.0.1:{port}", ca=authority, ca_file=""))
        try:
            client = Client(transport)
            await watch(self._screen, lambda: client.raw(Call("GET", STATE_PATH)))
        finally:
            await transport.close()

    def _is_over(self, alive: set[str]) -> bool:
        managers = [name for name in alive if name != API_SERVER]
        return API_SERVER not in alive or (self._options.managers > 0 and not managers)

    async def _stop_all(self) -> None:
        """Stop the managers first, so that they can release their leases, then the API server."""
        managers = [name for name in self._processes if name != API_SERVER]
        await all_of(*(self._end(name) for name in managers))
        if API_SERVER in self._processes:
            await self._end(API_SERVER)

    async def _end(self, name: str) -> None:
        process = self._processes[name]
        if process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
            self._say(f"{name} stopped")
        except TimeoutError:
            process.kill()
            await process.wait()
            self._say(f"{name} did not stop within {_STOP_SECONDS:.0f} s and was killed")

    def _obituary(self, child: Child, status: int) -> str:
        """Return how a child ended, with the last log lines of this run."""
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        with child.log.open("rb") as log:
            log.seek(self._logged[child.name])
            lines = log.read().decode("utf-8", "replace").splitlines()[-_LAST_LINES:]
        return "\n".join([f"{child.name} {how}; its last log lines:", *(f"  {line}" for line in lines)])


def _with_ports(options: ClusterOptions) -> ClusterOptions:
    """Return the options with free ports instead of 0. Raises CannotStart."""
    api_port, manager_port = options.api_port, options.manager_port
    try:
        if not api_port and not manager_port:
            api_port = free_ports(1 + options.managers)
            manager_port = api_port + 1
        api_port, manager_port = api_port or free_ports(1), manager_port or free_ports(options.managers)
    except OSError as error:
        raise CannotStart(f"--api-port, --manager-port: {error.strerror}; name ports that are free") from None
    return options.model_copy(update={"api_port": api_port, "manager_port": manager_port})


def _lock(folder: Path) -> int:
    """Lock the folder until the returned descriptor is closed. Raises OSError, and ValueError if it is in use."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 20).decode("ascii", "replace").strip()
        os.close(lock)
        raise ValueError(
            f"{folder} is in use by another cluster-up (process {holder}); stop it, or choose another"
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


def _load(*, controllers: bool) -> None:
    """Import the modules that are needed once the API server is ready."""
    import apiserver_stub.process.pki.authorities  # noqa: F401

    if controllers:
        from controller_manager.app import catalog, permissions  # noqa: F401 - takes as long as the API server's start

        catalog.installed()
