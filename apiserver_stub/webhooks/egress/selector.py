"""Which connections go through which proxy."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from controller_manager.common.base.log import Logger
from controller_manager.common.transport.dialer import Dialer


async def _nothing() -> None:
    """Nothing is to be closed."""


class EgressSelector(msgspec.Struct, frozen=True):
    """The dialers of the networks; None where connections are direct.

    `control_plane` is for webhooks that a URL names and for those of authentication, authorization and audit, `cluster`
    for services: of webhooks and of aggregated APIs; `etcd` for a storage behind the network. `selected` are the
    networks that the file names, those that are reached directly among them. `close` ends every connection through a
    proxy.
    """

    control_plane: Dialer | None = None
    cluster: Dialer | None = None
    etcd: Dialer | None = None
    selected: frozenset[str] = frozenset()
    close: Callable[[], Awaitable[None]] = _nothing


DIRECT = EgressSelector()


def egress_selector(config_file: str, registry: CollectorRegistry | None, log: Logger) -> EgressSelector:
    """Return the dialers that a file asks for. Raises as `EgressDialers` does."""
    if not config_file:
        return DIRECT
    from apiserver_stub.webhooks.egress.configuration import CLUSTER, CONTROL_PLANE, ETCD
    from apiserver_stub.webhooks.egress.dialers import EgressDialers  # a server without a file does without it

    made = EgressDialers(Path(config_file), registry, log)
    networks = made.by_network
    control_plane, cluster, etcd = (networks.get(name) for name in (CONTROL_PLANE, CLUSTER, ETCD))
    return EgressSelector(control_plane, cluster, etcd, frozenset(networks), made.close)
