"""Connections to kubelets and proxy targets, and their TLS files."""

import ssl
from pathlib import Path
from typing import NamedTuple

from apiserver_stub.apis.kubelet.locations import Kubelet, Location
from apiserver_stub.common.flags import KubeletOptions
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.transport.connection_pool import ConnectionTarget
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.streaming import StreamingTransport
from controller_manager.common.transport.transport import ConfigError, Endpoint, client_context

_LOOK_EVERY = 1.0  # seconds
_ANYBODY = Endpoint("", insecure=True)


class _Files(NamedTuple):
    certificate: bytes
    key: bytes
    authorities: bytes


class KubeletConnections:
    """Connections to kubelets, with this server's client certificate, and to proxy targets, without a certificate and
    without verification, since pods have no names for certificates.

    Files are read again on a new connection if the last check was a second ago. Invalid files are logged once and
    ignored. Without a `dialer`, connections are direct.
    """

    def __init__(self, options: KubeletOptions, log: Logger, dialer: Dialer | None = None) -> None:
        self._options = options
        self._log = log
        self.transport = StreamingTransport(dialer=dialer, connect=options.kubelet_timeout, keep_host=True)
        self._files: _Files | None = None
        self._looked = 0.0
        self._problem = ""
        self._verifying: ssl.SSLContext | None = None
        self._trusting: ssl.SSLContext | None = None
        self._unknown: ssl.SSLContext | None = None

    async def open(self) -> None:
        """Read the configured files. Raises `ConfigError` if they are invalid."""
        if self._options.kubelet_client_certificate or self._options.kubelet_certificate_authority:
            self._take(self._read())
            self._looked = monotonic()

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    def kubelet(self, kubelet: Kubelet, *, verified: bool = True) -> ConnectionTarget:
        """Return the connection target of a kubelet. Its certificate is not checked unless it is `verified`."""
        self._look()
        if not verified and self._trusting is None and self._files is not None:
            self._trusting = client_context(_ANYBODY, self._files.certificate, self._files.key)
        return ConnectionTarget(kubelet.host, kubelet.port, self._verifying if verified else self._trusting)

    def anything(self, location: Location) -> ConnectionTarget:
        """Return the connection target of a proxied location."""
        if location.secure and self._unknown is None:
            self._unknown = client_context(_ANYBODY, b"", b"")
        return ConnectionTarget(location.host, location.port, self._unknown if location.secure else None)

    def _look(self) -> None:
        now = monotonic()
        if self._verifying is not None and now - self._looked < _LOOK_EVERY:
            return
        self._looked = now
        problem = ""
        try:
            found = self._read()
            if found != self._files:
                self._take(found)
        except ConfigError as error:
            if self._verifying is None:
                raise
            problem = str(error)
        if problem and problem != self._problem:
            self._log.error(
                "failed to reload the TLS files of kubelet connections; keeping the previous ones", problem=problem
            )
        self._problem = problem

    def _read(self) -> _Files:
        options = self._options
        return _Files(
            _content(options.kubelet_client_certificate, "--kubelet-client-certificate"),
            _content(options.kubelet_client_key, "--kubelet-client-key"),
            _content(options.kubelet_certificate_authority, "--kubelet-certificate-authority"),
        )

    def _take(self, files: _Files) -> None:
        pair = files.certificate, files.key
        try:
            verifying = client_context(Endpoint("", files.authorities, insecure=not files.authorities), *pair)
        except ConfigError as error:
            what = "--kubelet-certificate-authority" if "authority" in str(error) else "--kubelet-client-certificate"
            raise ConfigError(f"{what} cannot be used, with what belongs to it: they hold no usable PEM") from error
        self._files, self._verifying, self._trusting = files, verifying, None


def _content(file: str, flag: str) -> bytes:
    """Return the content of a file; empty if none is configured. Raises `ConfigError`."""
    if not file:
        return b""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag}: {file}: {(error.strerror or str(error)).lower()}") from error
