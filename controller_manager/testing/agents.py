"""Simulated node agents: they register nodes, renew their leases and report their status."""

import asyncio
import contextlib
import re
from collections.abc import Sequence

from msgspec.structs import replace

from apiserver_stub.storage.interface import RevisionConflict, Write
from controller_manager.common.api.coordination import LEASES, Lease, LeaseSpec
from controller_manager.common.api.core import NODES, ZONE, Node, NodeCondition, NodeStatus
from controller_manager.common.api.errors import ApiError, Conflict
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import format_micro, format_time
from controller_manager.common.base.clock import utc_now
from controller_manager.common.transport.transport import TransportError
from controller_manager.testing.cluster import Cluster

LEASE_NAMESPACE = "kube-node-lease"
_MISSED = (ApiError, TransportError)
_VERSION, _RENEWED = re.compile(rb'"resourceVersion":"\d+"'), re.compile(rb'"renewTime":"[^"]*"')


class Agents:
    """Node agents without pods. Start `run` beside the test. Nodes in `silent` report nothing, as if disconnected.

    An agent renews its lease every `period` seconds, and reports its status if it differs from the Node object. Agents
    do this all at once (`together`) or spread over the period, as real ones do. `together` costs a third, which matters
    when days pass. With the default flags, a node is healthy if it renews its lease every 40 seconds.
    """

    def __init__(self, cluster: Cluster, period: int = 10, *, together: bool = False) -> None:
        self.silent: set[str] = set()
        self.readiness: dict[str, bool] = {}
        """The readiness that each agent reports, by the name of the node."""
        self.cluster = cluster
        self._period = period
        self._together = together
        # The revision and readiness of each Node object that was last found up to date.
        self._believed: dict[str, tuple[int, bool]] = {}

    async def join(self, name: str, zone: str = "", **labels: str) -> None:
        """Register a ready node."""
        if zone:
            labels[ZONE] = zone
        await self.cluster.client.create(
            NODES, Node(metadata=ObjectMeta(name=name, labels=labels), status=_status(True))
        )
        lease = ObjectMeta(namespace=LEASE_NAMESPACE, name=name)
        await self.cluster.client.create(LEASES, Lease(metadata=lease, spec=_renewed(name)))
        self.readiness[name] = True

    def say(self, name: str, *, ready: bool) -> None:
        """Set the readiness that a node reports from its next heartbeat on."""
        self.readiness[name] = ready

    async def leave(self, name: str) -> None:
        """Delete a node."""
        del self.readiness[name]
        await self.cluster.client.delete(NODES, Key("", name))

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        second = 0
        while True:
            if self._together:
                await self.beat([name for name in self.readiness if name not in self.silent])
                await asyncio.sleep(self._period)
                continue
            names = list(self.readiness)[second % self._period :: self._period]
            await self.beat([name for name in names if name not in self.silent])
            await asyncio.sleep(1)
            second += 1

    async def beat(self, names: list[str]) -> None:
        """Send a heartbeat for each of these nodes."""
        with contextlib.suppress(*_MISSED, RevisionConflict):
            await self._renew(names)
        for name in names:
            with contextlib.suppress(*_MISSED):
                try:
                    await self._report(name)
                except Conflict:  # kubelets also retry at once
                    await self._report(name)

    async def renew(self, name: str) -> None:
        """Renew one lease."""
        await self._renew([name])

    async def _renew(self, names: Sequence[str]) -> None:
        """Renew leases directly in the store; by requests they would be most of a test's cost."""
        store, now = self.cluster.api.store, format_micro(utc_now()).encode()
        writes = []
        for name in names:
            key = f"{LEASE_NAMESPACE}/{name}"
            row = store.get(LEASES.name, key)
            if row is not None:
                data = _RENEWED.sub(b'"renewTime":"%b"' % now, _VERSION.sub(b'"resourceVersion":""', row.data, 1), 1)
                writes.append(Write(LEASES.name, key, row.revision, data))
        if writes:
            await store.commit(*writes)

    async def _report(self, name: str) -> None:
        row = self.cluster.api.store.get(NODES.name, name)
        ready = self.readiness.get(name)
        if row is None or ready is None or self._believed.get(name) == (row.revision, ready):
            return
        node = Node.decode(row.data)
        if next((c.status for c in node.status.conditions if c.type == "Ready"), "") != str(ready):
            others = tuple(c for c in node.status.conditions if c.type == "NetworkUnavailable")
            status = replace(node.status, conditions=(*others, *_status(ready).conditions))
            await self.cluster.client.update(NODES, replace(node, status=status), subresource="status")
        else:
            self._believed[name] = row.revision, ready


def _renewed(name: str) -> LeaseSpec:
    return LeaseSpec(holder_identity=name, lease_duration_seconds=40, renew_time=format_micro(utc_now()))


def _status(ready: bool) -> NodeStatus:
    now = format_time(utc_now())
    readiness = {"MemoryPressure": False, "DiskPressure": False, "PIDPressure": False, "Ready": ready}
    conditions = (
        NodeCondition(
            type=kind, status=str(status), reason="AgentSays", last_heartbeat_time=now, last_transition_time=now
        )
        for kind, status in readiness.items()
    )
    return NodeStatus(conditions=tuple(conditions))
