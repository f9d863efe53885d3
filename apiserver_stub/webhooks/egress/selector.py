"""Selects the proxy for each type of connection."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from controller_manager.common.base.log import Logger
from controller_manager.common.transport.dialer import Dialer


async def _nothing() -> None:
    """Do nothing (default of `close`)."""


class EgressSelector(msgspec.Struct, frozen=True):
    """The dialers of the networks; None for direct connections.

    `control_plane` is for webhooks with a URL and for those of authentication, authorization and audit, `cluster` for
    services of webhooks and aggregated APIs, `etcd` for storage. `selected` are the networks in the file, including
    direct ones. `close` ends every connection through a proxy.
    """

    control_plane: Dialer | None = None
    cluster: Dialer | None = None
    etcd: Dialer | None = None
    selected: frozenset[str] = frozenset()
    close: Callable[[], Awaitable[None]] = _nothing


DIRECT = EgressSelector()


def egress_selector(config_file: str, registry: CollectorRegistry | None, log: Logger) -> EgressSelector:
    """Return the dialers configured by a file. Raises like `EgressDialers`."""
    if not config_file:
        return DIRECT
    from apiserver_stub.webhooks.egress.configuration import CLUSTER, CONTROL_PLANE, ETCD
    from apiserver_stub.webhooks.egress.dialers import EgressDialers  # not imported without a file

    made = EgressDialers(Path(config_file), registry, log)
    networks = made.by_network
    control_plane, cluster, etcd = (networks.get(name) for name in (CONTROL_PLANE, CLUSTER, ETCD))
    return EgressSelector(control_plane, cluster, etcd, frozenset(networks), made.close)
