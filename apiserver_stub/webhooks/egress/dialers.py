"""The dialers of an EgressSelectorConfiguration, and the numbers of attempted and failed connections."""

import asyncio
import socket
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote, urlsplit

from prometheus_client import CollectorRegistry

from apiserver_stub.common.spans import current_span
from apiserver_stub.webhooks.egress.configuration import (
    GRPC,
    EgressSelection,
    TCPTransport,
    TLSConfig,
    read_egress_selections,
)
from apiserver_stub.webhooks.egress.konnectivity import KonnectivityMetrics, KonnectivityProxy
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.grpc import GrpcChannel
from controller_manager.common.transport.http_connect import HTTPConnectProxy, ProxyAddress
from controller_manager.common.transport.sockets import CarriedSockets
from controller_manager.common.transport.transport import ConfigError, Endpoint, client_context

C = TypeVar("C")
_PATIENCE = 30.0  # seconds until there is a tunnel
_STARTS = Family(
    "apiserver_egress_dialer_dial_start_total", "Number of connection attempts.", "counter", ("protocol", "transport")
)
_FAILURES = Family(
    "apiserver_egress_dialer_dial_failure_count",
    "Number of failed connections, by stage: connecting to the proxy (connect) or tunneling (proxy).",
    "counter",
    ("protocol", "transport", "stage"),
)
_DURATION = Family(
    "apiserver_egress_dialer_dial_duration_seconds",
    "Seconds until the connection was established.",
    "histogram",
    ("protocol", "transport"),
    (0.005, 0.025, 0.1, 0.5, 2.5, 12.5),
)


class EgressMetrics:
    """The metrics of connections through proxies."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.starts = Counters(_STARTS, registry)
        self.failures = Counters(_FAILURES, registry)
        self.durations = Histograms(_DURATION, registry)
        self.konnectivity = KonnectivityMetrics(registry)


class Proxy(Protocol[C]):
    """Opens tunnels in two steps; each raises OSError."""

    async def connect(self) -> C:
        """Reach the proxy."""

    async def tunnel(self, connection: C, address: str) -> socket.socket:
        """Request a tunnel to an address."""


class EgressDialer(Generic[C]):
    """A `Dialer` through a proxy; a name is resolved by that. `labels` are protocol and transport."""

    def __init__(self, proxy: Proxy[C], labels: tuple[str, str], metrics: EgressMetrics) -> None:
        self._proxy = proxy
        self._labels = labels
        self._metrics = metrics

    async def dial(self, host: str, port: int) -> socket.socket:
        """See `Dialer`; fails after 30 seconds."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        span = current_span()
        if span is None:
            return await self._dial(address)
        with span.child("Proxy via {} protocol over {}".format(*self._labels), {"address": address}):
            return await self._dial(address)

    async def _dial(self, address: str) -> socket.socket:
        began, stage = monotonic(), "connect"
        self._metrics.starts.add(*self._labels)
        try:
            async with asyncio.timeout(_PATIENCE):
                connection = await self._proxy.connect()
                stage = "proxy"
                found = await self._proxy.tunnel(connection, address)
        except BaseException:
            self._metrics.failures.add(*self._labels, stage)
            raise
        self._metrics.durations.observe(monotonic() - began, *self._labels)
        return found


class EgressDialers:
    """The dialers configured by a file, by network; None for a direct network.

    Raises `ConfigFileError`, and `ConfigError` for unusable certificates or if the gRPC library is missing.
    """

    def __init__(self, config_file: Path, registry: CollectorRegistry | None, log: Logger) -> None:
        self._sockets, self._metrics = CarriedSockets(log), EgressMetrics(registry)
        self._channels: list[GrpcChannel] = []
        try:
            self.by_network = {one.network: self._dialer(one) for one in read_egress_selections(config_file)}
        except ConfigError as error:
            raise ConfigError(f"{config_file}: {error}") from error

    async def close(self) -> None:
        """End every connection through a proxy."""
        await self._sockets.close()
        for channel in self._channels:
            await channel.close()

    def _dialer(self, selection: EgressSelection) -> Dialer | None:
        transport, sockets = selection.connection.transport, self._sockets
        if transport is None:
            return None
        uds = transport.uds.uds_name if transport.uds else ""
        if selection.connection.proxy_protocol == GRPC:
            channel = GrpcChannel(f"unix:{quote(uds)}")
            self._channels.append(channel)
            return EgressDialer(
                KonnectivityProxy(channel, sockets, self._metrics.konnectivity), ("grpc", "uds"), self._metrics
            )
        if transport.tcp is None:
            proxy = HTTPConnectProxy(ProxyAddress(uds), sockets)
            return EgressDialer(proxy, ("http_connect", "uds"), self._metrics)
        proxy = HTTPConnectProxy(_address(transport.tcp), sockets)
        return EgressDialer(proxy, ("http_connect", "tcp"), self._metrics)


def _address(tcp: TCPTransport) -> ProxyAddress:
    url, tls = urlsplit(tcp.url), tcp.tls_config
    host = url.hostname or ""
    if tls is None:
        return ProxyAddress(host=host, port=url.port or 80)
    ca = _bytes(tls.ca_bundle) if tls.ca_bundle else b""
    context = client_context(Endpoint(tcp.url, ca), *_pair(tls))
    return ProxyAddress(host=host, port=url.port or 443, tls=context, server_name=tls.tls_server_name)


def _pair(tls: TLSConfig) -> tuple[bytes, bytes]:
    return _bytes(tls.client_cert), _bytes(tls.client_key)


def _bytes(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}") from None
