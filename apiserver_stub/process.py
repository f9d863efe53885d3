"""The process: sockets, signals, and one clear sentence when it cannot start."""

import asyncio
import signal
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

import uvloop

from apiserver_stub.authn.certificate import ClientCertificates, Handle
from apiserver_stub.build import ApiServer, build
from apiserver_stub.certificates import ServerCertificates, close_folders
from apiserver_stub.component_statuses import Ask
from apiserver_stub.flags import LogOptions, ServingOptions
from apiserver_stub.server import on_behalf
from apiserver_stub.store.errors import Unusable
from controller_manager.base.errors import CannotStart
from controller_manager.base.log import Levels, configure
from controller_manager.base.runtime import Runtime, collect_garbage_seldom
from controller_manager.base.tasks import Tasks, keep_running
from controller_manager.base.unhandled import unhandled
from controller_manager.base.watchdog import Watchdog
from controller_manager.options import Parsed
from controller_manager.serving.contexts import Contexts
from controller_manager.serving.http_server import HTTPServer, Limits
from controller_manager.serving.probe import probe
from controller_manager.serving.trust import Trust

_COMPONENTS: Mapping[str, Ask] = MappingProxyType(
    {"scheduler": partial(probe, 10259, "/healthz"), "controller-manager": partial(probe, 10257, "/healthz")}
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(program: str, options: Parsed) -> None:
    """Serve until a signal comes; exit with status 1 when that is impossible. `program` is its name in logs."""
    log = options[LogOptions]
    configure(json=log.logging_format == "json", levels=Levels(log.verbosity))
    try:
        uvloop.run(serve(options, Runtime(program)))
    except CannotStart as error:
        sys.stderr.write(f"{program}: {error}\n")
        raise SystemExit(1) from None


async def serve(options: Parsed, runtime: Runtime) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends the process at once. Raises `CannotStart`."""
    asyncio.get_running_loop().set_exception_handler(unhandled)
    trust = Trust()
    clients = ClientCertificates(trust)
    with _explained():
        close_folders(options)
        api = build(options, runtime, components=_COMPONENTS, certificates=clients)
        await api.open()
    try:
        with _explained():
            certificates = ServerCertificates(options, trust, runtime.log("certificates"))
            site = _site(clients.following(api.handle), options, certificates.contexts())
            await site.start()
        try:
            await _serve_until_signal(api, site, options, certificates, runtime)
        finally:
            api.end_streams()
            await site.stop()
    finally:
        await api.stop()


async def _serve_until_signal(
    api: ApiServer, site: HTTPServer, options: Parsed, certificates: ServerCertificates, runtime: Runtime
) -> None:
    serving, log = options[ServingOptions], runtime.log("main")
    stop = _on_signals()
    with _explained():
        url = certificates.write_kubeconfig(site.port)
    await api.settle(site.port, certificates.published())
    collect_garbage_seldom()
    log.info("ready", url=url, kubeconfig=str(certificates.kubeconfig_file))
    async with Tasks() as tasks:
        upkeep = partial(api.keep_settled, site.port, certificates.published)
        tasks.start(keep_running(upkeep, log, name="upkeep"), name="upkeep")
        watchdog = Watchdog(runtime.log("watchdog"), runtime.registry, on_behalf)
        tasks.start(keep_running(watchdog.run, log, name="watchdog"), name="watchdog")
        tasks.start(keep_running(partial(certificates.keep, site.port), log, name="certificates"), name="certificates")
        await stop.wait()
    for one in _SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(one)
    log.info("stopping because of a signal", delay=serving.shutdown_delay_duration)
    api.unready()
    await asyncio.sleep(serving.shutdown_delay_duration)


def _on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for one in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    return stop


def _site(handle: Handle, options: Parsed, contexts: Contexts) -> HTTPServer:
    serving = options[ServingOptions]
    limits = Limits(body=serving.max_request_bytes)
    return HTTPServer(handle, serving.bind_address, serving.secure_port, contexts, limits=limits)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what may go wrong with files and addresses at the start into a sentence."""
    try:
        yield
    except CannotStart:
        raise
    except ssl.SSLError as error:
        raise CannotStart(f"the certificate files cannot be used: {error.reason or error}") from error
    except OSError as error:
        what = f"{error.filename}: {(error.strerror or '').lower()}" if error.filename else str(error)
        raise CannotStart(what) from error
    except (Unusable, ValueError) as error:
        raise CannotStart(str(error)) from error
