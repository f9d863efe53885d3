"""Periodic checks of etcd's health and database size."""

import asyncio

from apiserver_stub.storage.etcd.client import EtcdClient
from apiserver_stub.storage.etcd.layout import Layout
from apiserver_stub.storage.etcd.metrics import EtcdMetrics
from controller_manager.common.base.clock import monotonic
from controller_manager.common.transport.grpc import GrpcError

_FILES = 60.0  # seconds between two checks of the TLS files


class Probe:
    """Reads a key twice within the timeouts of the health and readiness `checks`, and every `size` seconds (0: never)
    the size of each member's database.
    """

    def __init__(
        self, client: EtcdClient, layout: Layout, metrics: EtcdMetrics, checks: tuple[float, float], size: float
    ) -> None:
        self.problem = ""
        """Why etcd cannot be used; empty if it can."""
        self.unready = ""
        """Why etcd is not ready; empty if it is."""
        self._client = client
        self._key = layout.health
        self._metrics = metrics
        (self._health, self._ready), self._size = checks, size

    async def run(self) -> None:
        """Run the checks forever."""
        sizes = files = monotonic()
        while True:
            await asyncio.sleep(min(self._health, self._ready) / 2)
            await self._ask()
            if monotonic() - files >= _FILES:
                files = monotonic()
                await self._client.refresh()
            if self._size and monotonic() - sizes >= self._size:
                sizes = monotonic()
                await self._measure()

    async def _ask(self) -> None:
        began, longest = monotonic(), max(self._health, self._ready)
        try:
            await self._client.ask_once("Range", {"key": self._key}, longest)
        except GrpcError as failure:
            self.problem = self.unready = f"error getting data from etcd: {failure.message}"
            return
        took = monotonic() - began
        self.problem, self.unready = (
            "" if took <= allowed else f"etcd took {took:.1f} s to answer" for allowed in (self._health, self._ready)
        )

    async def _measure(self) -> None:
        for number, url in enumerate(self._client.urls):
            try:
                status = await self._client.ask_once("Status", {}, self._health, url)
            except GrpcError:
                self._metrics.size.forget(f"etcd-{number}")
            else:
                self._metrics.size.set(float(status.get("dbSize", 0)), f"etcd-{number}")
