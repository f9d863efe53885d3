"""The certificates of a running server: issued for its addresses and names, renewed before they expire, and reloaded
when their files change.
"""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from apiserver_stub.common.flags import (
    AggregationOptions,
    AuthenticationOptions,
    NetworkOptions,
    ServingOptions,
)
from apiserver_stub.process.pki.addresses import reachable_address, server_hosts, server_url
from apiserver_stub.process.pki.authorities import ADMIN, PROXY, YEAR, Authorities
from apiserver_stub.process.pki.folders import cert_folder
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.component.request_headers import REQUEST_HEADER_NAMES
from controller_manager.common.options.parse import Parsed
from controller_manager.common.serving.certificates import FilePair
from controller_manager.common.serving.tls import KeyPair, context_of
from controller_manager.common.serving.trust import CLIENTS, PROXIES, Trust, read_authorities

_LOOK_EVERY = 5.0  # seconds between two checks of the trusted authorities
_RENEW_EVERY = 60.0  # seconds between two checks for expiring certificates
_ALLOWED = REQUEST_HEADER_NAMES["allowed_names"]


class ServerCertificates:
    """The server certificate, the trusted authorities and the administrator's kubeconfig.

    `trust` receives the trusted CAs: of clients, the own client CA and --client-ca-file; of proxies,
    --requestheader-client-ca-file. `lifetime` applies to issued certificates. Without `renew`, another process
    maintains the files. Raises OSError or ValueError for unusable files.
    """

    def __init__(
        self, options: Parsed, trust: Trust, log: Logger, lifetime: timedelta = YEAR, *, renew: bool = True
    ) -> None:
        self._renews = renew
        self._options = options
        self._trust = trust
        self._log = log
        self._problem = ""
        self.kubeconfig_file = cert_folder(options) / "admin.kubeconfig"
        self._authorities = Authorities(cert_folder(options), lifetime)
        self._proxy_pair: KeyPair | None = None
        self._believe()

    def own_pair(self) -> FilePair:
        """Return the files of the certificate that the server issues for itself. Raises OSError or ValueError."""
        return FilePair(*self._server_files())

    def write_kubeconfig(self, port: int) -> str:
        """Write the kubeconfig for the server at `port`; return its URL. Raises OSError."""
        url = server_url(self._options[ServingOptions].bind_address, port)
        given = self._options[ServingOptions].tls_cert_file
        shown = Path(given).read_bytes() if given else b""
        if not self._renews:
            return url
        self._authorities.kubeconfig(self.kubeconfig_file, url, ADMIN, trust=shown)
        return url

    def published(self) -> Mapping[str, str]:
        """Return the authentication data for extension servers, published as a ConfigMap."""
        published = {"client-ca-file": self._trust.bundle(CLIENTS).decode()}
        if given := self._trust.bundle(PROXIES):
            stated = self._options[AggregationOptions].header_lists()
            named = {REQUEST_HEADER_NAMES[field]: values for field, values in stated.items()}
            lists = {name: json.dumps(values) for name, values in named.items() if values or name == _ALLOWED}
            return {**published, "requestheader-client-ca-file": given.decode(), **lists}
        proxies = self._authorities.front_proxy.pair.certificate
        return {
            **published,
            "requestheader-client-ca-file": proxies.decode("utf-8", "replace"),
            _ALLOWED: json.dumps([PROXY.user]),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }

    def proxy_pair(self) -> KeyPair | None:
        """Return the client certificate and key for connections to extension servers."""
        return self._proxy_pair

    async def keep(self, port: int) -> None:
        """Reload replaced files and renew expiring certificates, until canceled. Unusable files change nothing and are
        logged once.
        """
        renewed = monotonic()
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            problem = ""
            try:
                replaced = self._authorities.reload()
                self._believe()
                if self._renews and (replaced or monotonic() - renewed >= _RENEW_EVERY):
                    renewed = monotonic()
                    self._renew(port)
            except (OSError, ValueError) as error:
                problem = str(error)
            if problem and problem != self._problem:
                self._log.error("failed to reload certificates; keeping the current ones", problem=problem)
            self._problem = problem

    def _renew(self, port: int) -> None:
        if not self._options[ServingOptions].tls_cert_file:
            self._server_files()
        self.write_kubeconfig(port)

    def _believe(self) -> None:
        bundle = self._authorities.clients.pair.certificate
        if given := self._options[AuthenticationOptions].client_ca_file:
            bundle += b"\n" + read_authorities(Path(given), "--client-ca-file")
        self._trust.set(CLIENTS, bundle)
        aggregation = self._options[AggregationOptions]
        if given := aggregation.requestheader_client_ca_file:
            self._trust.set(PROXIES, read_authorities(Path(given), "--requestheader-client-ca-file"))
        if given := aggregation.proxy_client_cert_file:
            self._show_as_proxy(FilePair(Path(given), Path(aggregation.proxy_client_key_file)).read())
        else:
            self._proxy_pair = self._authorities.proxy_pair(self._proxy_pair)

    def _show_as_proxy(self, pair: KeyPair) -> None:
        """Use a new pair for connections as a proxy. Raises OSError or ValueError for an unusable pair."""
        if pair != self._proxy_pair:
            context_of(pair)
            self._proxy_pair = pair

    def _server_files(self) -> tuple[Path, Path]:
        serving, network = self._options[ServingOptions], self._options[NetworkOptions]
        advertised = serving.advertise_address or reachable_address(serving.bind_address)
        return self._authorities.server_files(server_hosts(serving.bind_address, advertised, network.first_service))
