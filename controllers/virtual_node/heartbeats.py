"""Renews the leases of virtual nodes, spread over time and independent of other work."""

import asyncio
import zlib

import msgspec

from controller_manager.common.api.coordination import LEASES, Lease
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.timestamps import format_micro
from controller_manager.common.base import clock
from controller_manager.common.base.log import Logger
from controller_manager.framework import Client, Key, in_parallel

LEASE_SECONDS = 40
_NAMESPACE = "kube-node-lease"
_RENEW_EVERY, _LONGEST = 10.0, 20.0
_MOST = 250.0
"""Renewals per second above which the interval grows, up to a limit."""
_AT_ONCE = 16
_TICK = 1.0  # seconds, in which renewals that are due are gathered


def renew_interval(count: int) -> float:
    """Return the seconds between two renewals of a lease, given the number of nodes."""
    return min(max(_RENEW_EVERY, count / _MOST), _LONGEST)


class Heartbeats:
    """The live nodes, and when each lease is renewed next (seconds of the monotonic clock)."""

    def __init__(self, client: Client, log: Logger) -> None:
        self._client = client
        self._log = log
        self._uids: dict[str, str] = {}
        self._due: dict[str, float] = {}
        self._changed = asyncio.Event()

    def begin(self, name: str, uid: str) -> None:
        """Add a node. Its first lease is due at once."""
        if self._uids.get(name) != uid:
            self._uids[name] = uid
            self._due[name] = clock.monotonic()
            self._changed.set()

    def end(self, name: str) -> None:
        """Remove a node that is gone or silent."""
        self._uids.pop(name, None)
        self._due.pop(name, None)

    async def run(self) -> None:
        """Renew leases until cancelled. Failed ones are retried with the next batch."""
        while True:
            if not self._due:
                self._changed.clear()
                await self._changed.wait()
            await asyncio.sleep(min(max(0.0, min(self._due.values()) - clock.monotonic()), _TICK))
            if due := self.take(clock.monotonic()):
                done = await in_parallel(due, self._renew, at_once=_AT_ONCE)
                if done.error is not None:
                    self._log.warning("not all leases were renewed", nodes=len(due), problem=str(done.error))
                await asyncio.sleep(_TICK)

    def take(self, now: float) -> list[str]:
        """Return the nodes whose leases are due, and schedule the next renewals with jitter."""
        found = [name for name, at in self._due.items() if at <= now]
        interval = renew_interval(len(self._due))
        for name in found:
            share = zlib.crc32(f"{name}/{now:.0f}".encode()) / 2**32
            self._due[name] = now + interval * (1 - share / 5)
        return found

    async def _renew(self, name: str) -> None:
        """Renew a lease, or create it."""
        now, uid = format_micro(clock.utc_now()), self._uids.get(name)
        if uid is None:
            return
        try:
            await self._client.patch(LEASES, Key(_NAMESPACE, name), {"spec": {"renewTime": now}})
            return
        except NotFound:
            pass
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        meta = {"name": name, "namespace": _NAMESPACE, "ownerReferences": [owner]}
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        await self._client.create(LEASES, Lease.decode(msgspec.json.encode({"metadata": meta, "spec": spec})))
