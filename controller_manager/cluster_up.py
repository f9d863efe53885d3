"""`cluster-up`: starts an API server and controller managers as child processes, and says where they are."""

import asyncio
import fcntl
import os
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from apiserver_stub.pki.authorities import Authorities, CertificateIdentity
from apiserver_stub.pki.folders import MARKS
from controller_manager.api.errors import ApiError
from controller_manager.api.platform import MANAGER_USER
from controller_manager.app.catalog import ENTRY_POINTS
from controller_manager.base.clock import monotonic
from controller_manager.base.errors import CannotStart, describe
from controller_manager.base.files import private_folder
from controller_manager.base.tasks import Tasks, all_of
from controller_manager.cluster_watch import Screen, wants_color, watch
from controller_manager.component.signals import obey_signals
from controller_manager.options import FlagSet, Options, command_line, flag
from controller_manager.options.types import FlagType
from controller_manager.serving.listening import listener_on
from controller_manager.tethered import LOADED
from controller_manager.transport import kubeconfig
from controller_manager.transport.transport import TransportError

if TYPE_CHECKING:  # loads the HTTP library
    from controller_manager.client import Client

T = TypeVar("T")

API_SERVER = "apiserver"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.02
LAST_LINES = 12
LEAD_SECONDS = 3.0
STANDING_BY = b"standing by"
RENEW_EVERY = 5.0  # managers whose authority was replaced keep their lease
LOCK = "cluster-up.lock"
_MANAGER_PARTS = "controller_manager.app.loaded"
_LONGEST_ANSWER = 64 * 1024
_CHOOSING = ("--enable-admission-plugins", "--disable-admission-plugins", "--admission-control=")

Arguments = Annotated[
    tuple[str, ...], FlagType("argument", lambda text: (text,), " ".join, lambda before, more: before + more)
]


class ClusterOptions(Options):
    """Cluster"""

    data_dir: str = flag(".cluster", "Folder of the store, the certificates, the kubeconfigs and the logs.")
    api_port: int = flag(6443, "Port of the API server, on 127.0.0.1.", minimum=1, maximum=65535)
    api_workers: int = flag(
        1, "How many processes of the API server answer requests, each on a core of its own.", minimum=1, maximum=64
    )
    manager_port: int = flag(
        10257, "Port of the first controller manager, on 127.0.0.1; the others follow.", minimum=1, maximum=65000
    )
    managers: int = flag(2, "How many controller managers to start; one of them leads.", minimum=0, maximum=20)
    scheduler: bool = flag(
        True,
        "Have the managers schedule pods too, unless arguments for them name controllers; without it another scheduler "
        "can be run.",
    )
    watch: bool = flag(False, "Show the cluster in this terminal, once it is ready, drawn anew every second.")
    nodes: int = flag(
        3,
        "How many virtual nodes there are, which run pods without a machine, unless arguments for the managers name "
        "controllers.",
        minimum=0,
        maximum=100_000,
    )
    apiserver_arg: Arguments = flag((), "A further argument for the API server; repeatable.")
    manager_arg: Arguments = flag((), "A further argument for every controller manager; repeatable.")


@dataclass(frozen=True, slots=True)
class Child:
    """A process of the cluster and how to tell that it is ready."""

    name: str
    command: tuple[str, ...]
    port: int
    log: Path


def main() -> None:
    """Entry point of the console script."""
    parsed = command_line("cluster-up", "Start a control plane on this machine.", FlagSet(ClusterOptions), sys.argv[1:])
    try:
        status = asyncio.run(LocalCluster(parsed[ClusterOptions], Screen(_write, colored=wants_color())).run())
    except CannotStart as error:
        sys.stderr.write(f"cluster-up: {error}\n")
        status = 1
    sys.exit(status)


class LocalCluster:
    """The child processes, from start to end.

    They are given a pipe as standard input and end when it closes: whatever ends this process, ends them.
    """

    def __init__(self, options: ClusterOptions, screen: Screen) -> None:
        self._options = options
        self._screen = screen
        self._say = say = screen.say
        self._folder = Path(options.data_dir).absolute()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._children = {child.name: child for child in self._plan()}
        self._logged: dict[str, int] = {}
        managers = [f"manager-{number}" for number in range(options.managers)]
        self._kubeconfigs = ManagerKubeconfigs(self._folder, managers, f"https://127.0.0.1:{options.api_port}", say)
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Start everything, wait for a signal or for what can't be done without, stop in order; the exit status."""
        obey_signals(lambda _: self._stop.set(), longest=3 * STOP_SECONDS)
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
        """Everything that can be refused before a process runs or a file is changed; the lock of the folder."""
        options = self._options
        if options.watch and not (sys.stdout.isatty() and options.managers):
            raise CannotStart("--watch: it needs a terminal, and a manager that tells of the cluster")
        try:
            private_folder(self._folder, MARKS)
            lock = _lock(self._folder)
        except OSError as error:
            raise CannotStart(f"--data-dir: {self._folder} is not a writable folder: {error.strerror}") from None
        except ValueError as error:
            raise CannotStart(f"--data-dir: {error}") from None
        ports = [options.api_port, *(options.manager_port + n for n in range(options.managers))]
        for port in ports:
            if not _is_free(port):
                name = "--api-port" if port == options.api_port else "--manager-port"
                owner = listener_on(port) or "another program"
                raise CannotStart(f"{name}: port {port} on 127.0.0.1 is in use by {owner}; stop that or choose another")
        self._say(f"certificates, kubeconfigs, store and logs in {self._folder}")
        return lock

    async def _start(self) -> None:
        """The API server first: managers that find nobody would wait before they try again. Meanwhile they load what
        they are made of.
        """
        tls = _without_verifying()
        server, *managers = self._children.values()
        for child in self._children.values():
            await self._launch(child)
        grants = managers and (self._pod_runners or entry_points(group=ENTRY_POINTS))
        await all_of(self._until_ready(server, tls), *([asyncio.to_thread(_load_controllers)] if grants else ()))
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

    async def _say_page(self) -> None:
        """Say where the cluster can be looked at in a browser: to who sits at a terminal with what opens the page."""
        if not self._managers or self._stop.is_set():
            return
        from controller_manager.app.pages.ui import PATH
        from controller_manager.app.viewer import viewer_token

        address = f"https://127.0.0.1:{await _leading_port(self._managers, _without_verifying())}{PATH}"
        if sys.stdout.isatty():
            address += f"#token={await self._as_admin(viewer_token)}"
        self._say(f"  {address}    # the cluster in a browser, which warns of the certificate")

    @property
    def _pod_runners(self) -> Arguments:
        """What managers are told so that pods are scheduled and run; nothing if somebody said which controllers there
        are.
        """
        options = self._options
        if any(argument.startswith("--controllers") for argument in options.manager_arg):
            return ()
        # Without nodes, those of a start before are to be deleted, if there are any.
        names = ("scheduler",) * options.scheduler + ("virtual-node-controller",)
        return (f"--controllers=*,{','.join(names)}", f"--virtual-nodes={options.nodes}")

    async def _grant(self) -> None:
        """Let controllers do what they declare: clusters have no roles for those of others, nor for what runs pods."""
        from controller_manager.app import catalog, permissions

        await self._as_admin(lambda client: permissions.grant(client, catalog.installed()))

    async def _as_admin(self, act: "Callable[[Client], Awaitable[T]]") -> T:
        """Return what comes of an act of an administrator. Raises CannotStart."""
        from controller_manager.client import Client, HttpTransport

        transport = HttpTransport(kubeconfig.load(self._folder / "admin.kubeconfig"))
        try:
            return await act(Client(transport))
        except (ApiError, TransportError, ValueError, ImportError) as error:
            raise CannotStart(f"the accounts of the cluster cannot be set up: {describe(error)}") from None
        finally:
            await transport.close()

    async def _bring_up(self, manager: Child, tls: ssl.SSLContext) -> None:
        """Let a manager that was launched begin."""
        stdin = self._processes[manager.name].stdin
        assert stdin is not None
        stdin.write(b"\n")  # one that has ended already is noticed by who waits for it
        await self._until_ready(manager, tls)

    async def _launch(self, child: Child) -> None:
        with child.log.open("ab") as log:
            self._logged[child.name] = log.tell()
            self._processes[child.name] = await asyncio.create_subprocess_exec(
                *child.command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    async def _until_ready(self, child: Child, tls: ssl.SSLContext) -> None:
        process = self._processes[child.name]
        deadline = monotonic() + START_SECONDS
        while not self._stop.is_set():
            if process.returncode is not None:
                raise CannotStart(self._obituary(child, process.returncode))
            if await _answers_ready(child.port, tls):
                self._say(f"{child.name} is ready on https://127.0.0.1:{child.port}, log in {child.log}")
                return
            if monotonic() > deadline:
                raise CannotStart(f"{child.name} is not ready after {START_SECONDS:.0f} s; its log is {child.log}")
            await asyncio.sleep(POLL_SECONDS)

    async def _watch_over(self) -> int:
        """Report children that end by themselves; 1 when the API server or the last manager did."""
        async with Tasks() as tasks:
            waiting = {tasks.start(process.wait(), name=name): name for name, process in self._processes.items()}
            stop = tasks.start(self._stop.wait(), name="stop")
            tasks.start(self._kubeconfigs.keep(), name="kubeconfigs")
            if self._options.watch:
                tasks.start(self._show(), name="watch")
            while True:
                done, _ = await asyncio.wait((stop, *waiting), return_when=asyncio.FIRST_COMPLETED)
                if stop in done:
                    return 0
                for task in done:
                    name = waiting.pop(task)
                    self._say(self._obituary(self._children[name], task.result()))
                if self._is_over(set(waiting.values())):
                    return 1

    async def _show(self) -> None:
        """Show the cluster in the terminal, as an administrator sees it, until cancelled."""
        from controller_manager.app.pages.ui import STATE_PATH
        from controller_manager.client import Client, HttpTransport
        from controller_manager.client.client import Call

        admin = kubeconfig.load(self._folder / "admin.kubeconfig")
        port = await _leading_port(self._managers, _without_verifying())
        (child,) = (child for child in self._managers if child.port == port)
        authority = b"".join(file.read_bytes() for file in (self._folder / child.name).glob("*.crt"))
        transport = HttpTransport(replace(admin, server=f"https://127.0.0.1:{port}", ca=authority))
        try:
            client = Client(transport)
            await watch(self._screen, lambda: client.raw(Call("GET", STATE_PATH)))
        finally:
            await transport.close()

    def _is_over(self, alive: set[str]) -> bool:
        managers = [name for name in alive if name != API_SERVER]
        return API_SERVER not in alive or (self._options.managers > 0 and not managers)

    async def _stop_all(self) -> None:
        """Managers first, so that they can release their lease; then the API server."""
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
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
            self._say(f"{name} stopped")
        except TimeoutError:
            process.kill()
            await process.wait()
            self._say(f"{name} did not stop within {STOP_SECONDS:.0f} s and was killed")

    def _plan(self) -> list[Child]:
        options, folder = self._options, self._folder
        decided = any(argument.startswith("--authorization-") for argument in options.apiserver_arg)
        chosen = any(argument.startswith(_CHOOSING) for argument in options.apiserver_arg)
        # Where nobody makes service accounts, pods do without.
        plugins = "NodeRestriction,ServiceAccount" if options.managers else "NodeRestriction"
        arguments = (
            f"--data-dir={folder}",
            f"--secure-port={options.api_port}",
            "--bind-address=127.0.0.1",
            *((f"--workers={options.api_workers}",) if options.api_workers > 1 else ()),
            *(() if decided else ("--authorization-mode=Node,RBAC",)),
            *(() if chosen else (f"--enable-admission-plugins={plugins}",)),
            *options.apiserver_arg,
        )
        children = [self._child(API_SERVER, options.api_port, ("apiserver_stub", *arguments))]
        for number in range(options.managers):
            name, port = f"manager-{number}", options.manager_port + number
            kubeconfig = folder / f"{name}.kubeconfig"
            given = (
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                f"--secure-port={port}",
                "--bind-address=127.0.0.1",
                f"--cert-dir={folder / name}",
                f"--client-ca-file={folder / 'client-ca.crt'}",
                f"--root-ca-file={folder / 'ca.crt'}",
                f"--service-account-private-key-file={folder / 'sa.key'}",
                "--use-service-account-credentials=true",
                "--kube-api-qps=-1",  # the API server is here for them alone, and refuses what is too much
                "--adaptive-api-throttling",
                *_signing(folder, options.manager_arg),
                *self._pod_runners,
            )
            program = (f"{LOADED}{_MANAGER_PARTS}", "controller_manager")
            children.append(self._child(name, port, (*program, *given, *options.manager_arg)))
        return children

    def _child(self, name: str, port: int, arguments: tuple[str, ...]) -> Child:
        command = (sys.executable, "-m", "controller_manager.tethered", *arguments)
        return Child(name, command, port, self._folder / f"{name}.log")

    def _obituary(self, child: Child, status: int) -> str:
        """Return how a child ended, with what it logged last in this run."""
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        with child.log.open("rb") as log:
            log.seek(self._logged[child.name])
            lines = log.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]
        return "\n".join([f"{child.name} {how}; its last log lines:", *(f"  {line}" for line in lines)])


class ManagerKubeconfigs:
    """The kubeconfigs of the managers of these names, beside the authorities; `server` is the API server's URL."""

    def __init__(self, folder: Path, names: Sequence[str], server: str, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._files = [folder / f"{name}.kubeconfig" for name in names]
        self._server = server
        self._say = say

    def write(self) -> None:
        """Have them connect for a good while yet. Raises OSError or ValueError."""
        authorities = Authorities(self._folder)
        for file in self._files:
            authorities.renewable_kubeconfig(file, self._server, CertificateIdentity(MANAGER_USER))

    async def keep(self) -> None:
        """Renew what the managers show before it expires, until cancelled; what hinders that is told of once."""
        reported = ""
        while True:
            await asyncio.sleep(RENEW_EVERY)
            problem = ""
            try:
                self.write()
            except (OSError, ValueError) as error:
                problem = f"the kubeconfigs of the managers cannot be renewed: {error}"
            if problem and problem != reported:
                self._say(problem)
            reported = problem


def _signing(folder: Path, more: Arguments) -> Arguments:
    """Each signer has the authority that those believe who meet its certificates, unless arguments name others: the
    API server believes no authority for its clients but that of its own signers.
    """
    if any(argument.startswith("--cluster-signing-") and "-file" in argument for argument in more):
        return ()
    signers = {
        "kube-apiserver-client": "client-ca",
        "kubelet-client": "client-ca",
        "kubelet-serving": "signing-ca",
        "legacy-unknown": "signing-ca",
    }
    return tuple(
        f"--cluster-signing-{signer}-{kind}-file={folder / authority}.{suffix}"
        for signer, authority in signers.items()
        for kind, suffix in (("cert", "crt"), ("key", "key"))
    )


def _lock(folder: Path) -> int:
    """A descriptor that keeps the folder ours while it is open. Raises OSError, and ValueError if it is another's."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _without_verifying() -> ssl.SSLContext:
    """For questions about health on loopback, which tell nothing to who answers."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


async def _answers_ready(port: int, tls: ssl.SSLContext) -> bool:
    """Return whether GET /readyz answers 200."""
    return b" 200 " in (await _ask(port, tls, "/readyz")).partition(b"\r\n")[0]


async def _leading_port(managers: Sequence["Child"], tls: ssl.SSLContext) -> int:
    """Return the port of the manager that leads, as far as that is known within some seconds."""
    for _ in range(int(LEAD_SECONDS / POLL_SECONDS)):
        answers = [await _ask(child.port, tls, "/readyz?verbose") for child in managers]
        waiting = [STANDING_BY in answer for answer in answers]
        if waiting.count(False) == 1:
            return managers[waiting.index(False)].port
        await asyncio.sleep(POLL_SECONDS)
    return managers[0].port


async def _ask(port: int, tls: ssl.SSLContext, path: str) -> bytes:
    """Return the answer to a GET, empty if there is none.

    Without an HTTP library, since the start counts milliseconds.
    """
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
                return await reader.read(_LONGEST_ANSWER)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


def _load_controllers() -> None:
    from controller_manager.app import catalog, permissions  # noqa: F401 - takes as long as the API server's start

    catalog.installed()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
