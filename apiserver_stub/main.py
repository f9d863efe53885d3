"""The process: command line, sockets, signals, and one clear sentence when it cannot start."""

import asyncio
import signal
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

import uvloop

from apiserver_stub import maintenance
from apiserver_stub.build import ApiServer, build
from apiserver_stub.component_statuses import Ask
from apiserver_stub.credentials import ADMIN, Authority, reachable_address, server_hosts, server_url
from apiserver_stub.flags import FLAGS, CertificateOptions, LogOptions, NetworkOptions, ServingOptions, StorageOptions
from apiserver_stub.store.refusals import Unusable
from controller_manager.base.log import Levels, configure
from controller_manager.base.runtime import Runtime, collect_garbage_seldom
from controller_manager.base.tasks import Tasks, keep_running
from controller_manager.options import Parsed, command_line
from controller_manager.serving.contexts import Contexts
from controller_manager.serving.pairs import FilePair
from controller_manager.serving.probe import probe
from controller_manager.serving.site import Limits, Site

_PROGRAM = "apiserver-stub"
_SUMMARY = "Serves the Kubernetes API from an embedded, durable store."
_COMPONENTS: Mapping[str, Ask] = MappingProxyType(
    {"scheduler": partial(probe, 10259, "/healthz"), "controller-manager": partial(probe, 10257, "/healthz")}
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class CannotStart(Exception):
    """Why the process cannot start, in one sentence for who started it."""


def main() -> None:
    """Run until a signal comes; exit with status 1 when that is impossible."""
    if sys.argv[1:2] and sys.argv[1] in maintenance.COMMANDS:
        maintenance.run(sys.argv[1], sys.argv[2:])
        return
    options = command_line(_PROGRAM, _SUMMARY, FLAGS, sys.argv[1:], maintenance.HELP)
    log = options[LogOptions]
    configure(json=log.logging_format == "json", levels=Levels(log.verbosity))
    try:
        uvloop.run(serve(options, Runtime(_PROGRAM)))
    except CannotStart as error:
        sys.stderr.write(f"{_PROGRAM}: {error}\n")
        raise SystemExit(1) from None


async def serve(options: Parsed, runtime: Runtime) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends the process at once. Raises `CannotStart`."""
    with _explained():
        api = build(options, runtime, components=_COMPONENTS)
        await api.open()
    try:
        with _explained():
            authority = Authority(_cert_folder(options))
            site = _site(api, options, authority)
            await site.start()
        try:
            await _serve_until_signal(api, site, options, authority, runtime)
        finally:
            api.end_streams()
            await site.stop()
    finally:
        await api.stop()


async def _serve_until_signal(
    api: ApiServer, site: Site, options: Parsed, authority: Authority, runtime: Runtime
) -> None:
    serving, log = options[ServingOptions], runtime.log("main")
    stop = _on_signals()
    with _explained():
        url = _write_kubeconfig(authority, options, site.port)
    authorities = _authorities(options, authority)
    await api.settle(site.port, authorities)
    collect_garbage_seldom()
    log.info("ready", url=url, kubeconfig=str(_kubeconfig(options)))
    async with Tasks() as tasks:
        upkeep = partial(api.keep_settled, site.port, authorities)
        tasks.start(keep_running(upkeep, log, name="upkeep"), name="upkeep")
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


def _site(api: ApiServer, options: Parsed, authority: Authority) -> Site:
    serving = options[ServingOptions]
    limits = Limits(body=serving.max_request_bytes)
    return Site(api.handle, serving.bind_address, serving.secure_port, _tls(options, authority), limits=limits)


def _tls(options: Parsed, authority: Authority) -> Contexts:
    serving, given, network = options[ServingOptions], options[CertificateOptions], options[NetworkOptions]
    for file in filter(None, (given.tls_cert_file, given.tls_private_key_file, given.client_ca_file)):
        Path(file).open("rb").close()  # the refusals of ssl name no file
    if given.tls_cert_file:
        pair = FilePair(Path(given.tls_cert_file), Path(given.tls_private_key_file))
    else:
        advertised = serving.advertise_address or reachable_address(serving.bind_address)
        own = authority.server_files(server_hosts(serving.bind_address, advertised, network.first_service))
        pair = FilePair(*own)
    bundle = _authorities(options, authority)
    return Contexts(pair, authorities=lambda: bundle)


def _authorities(options: Parsed, authority: Authority) -> bytes:
    """Whose client certificates are believed."""
    given = options[CertificateOptions].client_ca_file
    return b"\n".join(file.read_bytes() for file in (authority.certificate_file, *([Path(given)] if given else [])))


def _write_kubeconfig(authority: Authority, options: Parsed, port: int) -> str:
    given = options[CertificateOptions].tls_cert_file
    url = server_url(options[ServingOptions].bind_address, port)
    authority.kubeconfig(_kubeconfig(options), url, ADMIN, trust=Path(given).read_bytes() if given else b"")
    return url


def _kubeconfig(options: Parsed) -> Path:
    return _cert_folder(options) / "admin.kubeconfig"


def _cert_folder(options: Parsed) -> Path:
    return Path(options[CertificateOptions].cert_dir or options[StorageOptions].data_dir)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what may go wrong with files and addresses at the start into a sentence."""
    try:
        yield
    except ssl.SSLError as error:
        raise CannotStart(f"the certificate files cannot be used: {error.reason or error}") from error
    except OSError as error:
        what = f"{error.filename}: {(error.strerror or '').lower()}" if error.filename else str(error)
        raise CannotStart(what) from error
    except (Unusable, ValueError) as error:
        raise CannotStart(str(error)) from error
