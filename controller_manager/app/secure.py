"""The listening site of the manager, as its flags describe it."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from controller_manager.api.wire import Request, Response
from controller_manager.app.flags import AccessOptions, ServingOptions
from controller_manager.client import ConfigError
from controller_manager.options import Parsed
from controller_manager.serving import Site
from controller_manager.serving.tls import passing_context, self_signed, server_context

_NAME = "cluster-controller-manager"
_ALL_INTERFACES = ("", "0.0.0.0", "::")  # noqa: S104 - these name no host a certificate could be for


def secure_site(handle: Callable[[Request], Awaitable[Response]], parsed: Parsed) -> Site | None:
    """The site, or None with --secure-port=0; raises ConfigError naming the flags whose files cannot be used."""
    serving = parsed[ServingOptions]
    if not serving.secure_port:
        return None
    context = _context(serving, parsed[AccessOptions].client_ca_file)
    return Site(handle, serving.bind_address, serving.secure_port, context)


def _context(serving: ServingOptions, client_ca_file: str) -> ssl.SSLContext:
    authorities = Path(client_ca_file) if client_ca_file else None
    if authorities is not None:
        _check_authorities(authorities)
    if serving.tls_cert_file:
        files = Path(serving.tls_cert_file), Path(serving.tls_private_key_file)
        flags = "--tls-cert-file and --tls-private-key-file"
    else:
        try:
            hosts = _hosts(serving.bind_address)
            if not serving.cert_dir:
                return passing_context(_NAME, hosts, authorities)
            files = self_signed(Path(serving.cert_dir), _NAME, hosts)
        except OSError as error:
            raise ConfigError(f"--cert-dir: {serving.cert_dir} cannot be written: {error.strerror}") from error
        flags = "--cert-dir"
    try:
        return server_context(*files, authorities)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{flags}: {files[0]} and {files[1]} are no certificate and its key: {error}") from error


def _check_authorities(file: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"--client-ca-file: {file} holds no certificates that can be read: {error}") from error


def _hosts(bind_address: str) -> list[str]:
    own = [] if bind_address in _ALL_INTERFACES else [bind_address]
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), *own]))
