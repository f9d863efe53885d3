"""The CA certificates that a client uses to verify a server. A CA file is reloaded while the client runs."""

import math
import ssl
from dataclasses import replace
from pathlib import Path

from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import get_logger
from controller_manager.common.transport.metrics import TransportMetrics
from controller_manager.common.transport.transport import ConfigError, Endpoint, client_context

_LOOK_EVERY = 60.0  # seconds between two reads of the file


class ServerAuthorities:
    """The endpoint with the current CA certificates. A file that cannot be read or parsed does not replace them."""

    def __init__(self, endpoint: Endpoint, metrics: TransportMetrics) -> None:
        self.endpoint = endpoint
        self._metrics = metrics
        self._look_at = monotonic() + _LOOK_EVERY if endpoint.ca_file else math.inf
        self._problem = ""

    def distrust(self) -> None:
        """Reload the file before the next request, because the server could not be verified."""
        self._look_at = min(self._look_at, monotonic()) if self.endpoint.ca_file else math.inf

    def renewed(self) -> bool:
        """Reload the file if it is due; return whether the certificates have changed."""
        if self._look_at == math.inf or monotonic() < self._look_at:
            return False
        self._look_at = monotonic() + _LOOK_EVERY
        try:
            found = Path(self.endpoint.ca_file).read_bytes()
        except OSError as error:
            return self._keep("read_error", error.strerror or str(error))
        if not found.strip():
            return self._keep("empty", "the file is empty")
        if found == self.endpoint.ca:
            self._problem = ""
            self._metrics.reloaded_authorities("success", "unchanged")
            return False
        return self._use(replace(self.endpoint, ca=found))

    def context(self, certificate: bytes, key: bytes) -> ssl.SSLContext:
        """Return a context that trusts the CA certificates and sends a client certificate, if given. Raises
        `ConfigError`.
        """
        return client_context(self.endpoint, certificate, key)

    def _use(self, endpoint: Endpoint) -> bool:
        try:
            client_context(endpoint, b"", b"")
        except ConfigError as error:
            return self._keep("ca_parse_error", str(error))
        self.endpoint, self._problem = endpoint, ""
        self._metrics.reloaded_authorities("success", "updated")
        get_logger("authorities").info("using new authorities", file=endpoint.ca_file, server=endpoint.server)
        return True

    def _keep(self, reason: str, problem: str) -> bool:
        """Count a failure, and log it unless the previous read failed for the same reason."""
        self._metrics.reloaded_authorities("failure", reason)
        if problem != self._problem:
            get_logger("authorities").warning(
                "failed to read authorities; keeping those in use", file=self.endpoint.ca_file, error=problem
            )
        self._problem = problem
        return False
