"""The process of the API server: its parts and its lifecycle."""

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.common.flags import ServingOptions
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.pki.certificates import ServerCertificates
from apiserver_stub.process.pki.folders import close_folders
from apiserver_stub.server.component_statuses import Ask, probe
from apiserver_stub.server.handler_chain import on_behalf
from apiserver_stub.storage.interface import Unusable
from apiserver_stub.storage.worker import ALONE, Worker
from controller_manager.common.api.errors import ApiError
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.runtime import Runtime, collect_garbage_seldom
from controller_manager.common.base.tasks import Tasks, keep_running
from controller_manager.common.component.options import ProfilingOptions
from controller_manager.common.component.pages import Profiling
from controller_manager.common.component.process import run_process, start_watchdog
from controller_manager.common.component.secure_server import secure_server
from controller_manager.common.component.signals import LONGEST_STOP, obey_signals
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.http_server import ServerLimits
from controller_manager.common.serving.trust import Trust

_COMPONENTS: Mapping[str, Ask] = MappingProxyType(
    {"scheduler": partial(probe, 10259, "/healthz"), "controller-manager": partial(probe, 10257, "/healthz")}
)


def run(program: str, options: Parsed) -> int:
    """Serve until a signal arrives; return the exit status. `program` is the name in logs."""
    return run_process(program, options, partial(serve, options))


async def serve(options: Parsed, runtime: Runtime, worker: Worker = ALONE) -> int:
    """Serve until SIGINT or SIGTERM, possibly as one of several processes. Raises CannotStart."""
    serving, delay = options[ServingOptions], options[ServingOptions].shutdown_delay_duration
    stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    obey_signals(stop.set_result, longest=delay + LONGEST_STOP)
    trust = Trust()
    clients = ClientCertificates(trust)
    profiling = Profiling(options[ProfilingOptions], runtime.name)
    with _explained():
        close_folders(options)
        certificates = ServerCertificates(options, trust, runtime.log("certificates"), renew=worker.is_first)
        api = build(
            options,
            runtime,
            worker.storage,
            components=_COMPONENTS,
            certificates=clients,
            profiling=profiling,
            proxy_pair=certificates.proxy_pair,
            worker=worker,
        )
        await api.open()
    try:
        with _explained():
            limits, handle = ServerLimits(body=serving.max_request_bytes), clients.following(api.handle)
            server = secure_server(handle, serving, trust, certificates.own_pair, limits, worker.listener)
            await server.start()
        try:
            async with Tasks() as tasks:
                start_watchdog(tasks, runtime, on_behalf, profiling.record)
                await _begin(api, server.port, certificates, runtime, tasks)
                worker.ready()
                reason = await stop
            runtime.log("main").info("stopping", reason=reason, delay=delay)
            api.unready()
            await asyncio.sleep(delay)
        finally:
            api.end_streams()
            await server.stop()
    finally:
        await api.stop()
    return 0


async def _begin(api: ApiServer, port: int, certificates: ServerCertificates, runtime: Runtime, tasks: Tasks) -> None:
    """Create the objects that every cluster has, and start the tasks that maintain them."""
    log = runtime.log("main")
    with _explained():
        url = certificates.write_kubeconfig(port)
    await api.settle(port, certificates.published())
    collect_garbage_seldom()
    log.info("ready", url=url, kubeconfig=str(certificates.kubeconfig_file))
    upkeep = partial(api.keep_settled, port, certificates.published)
    tasks.start(keep_running(upkeep, log, name="upkeep"), name="upkeep")
    tasks.start(api.load_all(), name="loading")
    tasks.start(keep_running(api.run, log, name="aggregation"), name="aggregation")
    tasks.start(keep_running(partial(certificates.keep, port), log, name="certificates"), name="certificates")


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of files and addresses at startup into a readable message."""
    try:
        yield
    except CannotStart:
        raise
    except ssl.SSLError as error:
        raise CannotStart(f"the certificate files cannot be used: {error.reason or error}") from error
    except OSError as error:
        what = f"{error.filename}: {(error.strerror or '').lower()}" if error.filename else str(error)
        raise CannotStart(what) from error
    except (Unusable, ApiError, ValueError) as error:
        raise CannotStart(str(error)) from error
