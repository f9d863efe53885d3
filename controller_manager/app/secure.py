"""The listening site of the manager, as its flags describe it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import field_validator, model_validator

from controller_manager.api.wire import Request, Response
from controller_manager.client import ConfigError
from controller_manager.options import Options, flag
from controller_manager.serving.trust import Trust

if TYPE_CHECKING:
    from controller_manager.serving import Site

_NAME = "cluster-controller-manager"
_ALL_INTERFACES = ("", "0.0.0.0", "::")  # noqa: S104 - these name no host a certificate could be for


class ServingOptions(Options):
    """Where health, metrics and the like are served."""

    title: ClassVar[str] = "Secure serving"

    bind_address: str = flag("0.0.0.0", "address to listen on; empty, 0.0.0.0 and :: are all")  # noqa: S104
    secure_port: int = flag(10257, "port to serve HTTPS on; 0 serves nothing", minimum=0, maximum=65535)
    cert_dir: str = flag(
        "",
        "folder in which the self-signed certificate is kept; without it, it lasts as long as the process; not used "
        "with --tls-cert-file",
    )
    tls_cert_file: str = flag("", "file of the certificate to show, followed by those that signed it", metavar="file")
    tls_private_key_file: str = flag("", "file of the private key of --tls-cert-file", metavar="file")

    @field_validator("bind_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value:
            ip_address(value)
        return value

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ValueError("--tls-cert-file and --tls-private-key-file must be given together")
        return self


def secure_site(handle: Callable[[Request], Awaitable[Response]], serving: ServingOptions, trust: Trust) -> Site | None:
    """The site, or None with --secure-port=0; raises ConfigError naming the flags whose files cannot be used."""
    if not serving.secure_port:
        return None
    from controller_manager.serving import Site  # --help does without its HTTP library

    return Site(handle, serving.bind_address, serving.secure_port, _context(serving, trust))


def _context(serving: ServingOptions, trust: Trust) -> ssl.SSLContext:
    from controller_manager.serving.tls import passing_context, self_signed, server_context

    if serving.tls_cert_file:
        files = Path(serving.tls_cert_file), Path(serving.tls_private_key_file)
        flags = "--tls-cert-file and --tls-private-key-file"
    else:
        try:
            hosts = _hosts(serving.bind_address)
            if not serving.cert_dir:
                return passing_context(_NAME, hosts, trust.authorities)
            files = self_signed(Path(serving.cert_dir), _NAME, hosts)
        except OSError as error:
            raise ConfigError(f"--cert-dir: {serving.cert_dir} cannot be written: {error.strerror}") from error
        flags = "--cert-dir"
    try:
        return server_context(*files, trust.authorities)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{flags}: {files[0]} and {files[1]} are no certificate and its key: {error}") from error


def _hosts(bind_address: str) -> list[str]:
    own = [] if bind_address in _ALL_INTERFACES else [bind_address]
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), *own]))
