"""Leases of etcd that delete rows at the end of their lifetime. Rows that expire at about the same time share a
lease.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping

import msgspec

from apiserver_stub.storage.etcd.client import EtcdClient
from apiserver_stub.storage.etcd.metrics import EtcdMetrics
from controller_manager.common.base.clock import monotonic

_PART = 0.05  # fraction of a lifetime that rows may live longer
_MOST_OBJECTS = 1000
_MOST_KEPT = 16  # cached leases, by lifetime


class _Lease(msgspec.Struct):
    id: int
    ends: float
    objects: int = 0


class Leases:
    """The newest lease for each lifetime. A lease is reused for `reuse` seconds, but at most a twentieth of the
    lifetime, and for a thousand objects.
    """

    def __init__(self, client: EtcdClient, metrics: EtcdMetrics, reuse: float) -> None:
        self._client = client
        self._metrics = metrics
        self._reuse = reuse
        self._known: dict[float, _Lease] = {}
        self._turn = asyncio.Lock()

    async def for_lifetimes(self, ttls: Iterable[float]) -> Mapping[float, int]:
        """Return a lease ID for each lifetime (seconds). Raises `GrpcError`."""
        async with self._turn:
            return {ttl: await self._lease(ttl) for ttl in ttls}

    def forget(self) -> None:
        """Forget all leases: etcd does not know one of them."""
        self._known.clear()

    async def _lease(self, ttl: float) -> int:
        now, known = monotonic(), self._known.get(ttl)
        if known is None or known.objects >= _MOST_OBJECTS or now + ttl >= known.ends:
            if known is not None:
                self._metrics.leased.observe(known.objects)
            known = await self._grant(ttl, now)
        known.objects += 1
        return known.id

    async def _grant(self, ttl: float, now: float) -> _Lease:
        seconds = math.ceil(ttl) + int(min(self._reuse, _PART * ttl))
        answer = await self._client.read("LeaseGrant", {"TTL": seconds})  # a lease granted twice expires unused
        made = _Lease(answer["ID"], now + seconds)
        self._known.pop(ttl, None)
        while len(self._known) >= _MOST_KEPT:
            self._known.pop(next(iter(self._known)))
        self._known[ttl] = made
        return made
