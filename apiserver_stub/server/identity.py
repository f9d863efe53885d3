"""Publishes the identity of this API server (KEP-1965): a lease that is renewed while the server runs."""

import asyncio
import base64
import hashlib
import socket

from apiserver_stub.bootstrap.objects import Objects
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.apiserver_internal import API_SERVER, IDENTITY_LABEL
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN, SYSTEM_NAMESPACE
from controller_manager.common.api.timestamps import format_micro, time_of
from controller_manager.common.base.clock import monotonic, utc_now
from controller_manager.common.base.log import Logger
from controller_manager.common.base.random import random_source

RENEWED = 10.0  # seconds between renewals
COLLECTED = 3600.0  # seconds between two collections of expired leases
_HELD = 3600  # seconds that a lease holds without being renewed
_JITTER = 0.04
_STORED = f"leases.coordination.{GROUP_DOMAIN}"
_API = f"coordination.{GROUP_DOMAIN}/v1"
_LEASES = f"/apis/{_API}/namespaces/{SYSTEM_NAMESPACE}/leases"


def server_id(hostname: str, number: int = 0) -> str:
    """Return the id of the API server of a host, or of its worker process `number`; stable across restarts."""
    parts = (hostname.encode(), API_SERVER.encode(), *((str(number).encode(),) if number else ()))
    digest = hashlib.sha256(b"".join(len(part).to_bytes(2) + part for part in parts)).digest()
    return f"apiserver-{base64.b32encode(digest[:16]).decode().rstrip('=').lower()}"


class ServerIdentity:
    """The lease of this server, or of its worker process `number`. Deletes the leases of servers that have been gone
    for an hour.
    """

    def __init__(self, objects: Objects, store: WatchCache, log: Logger, number: int = 0) -> None:
        self.id = server_id(socket.gethostname(), number)
        self._objects = objects
        self._store = store
        self._log = log
        self._holder = ""

    async def settle(self) -> None:
        """Create the lease of this server and delete that of an earlier server on this host. Later calls do nothing."""
        if self._holder:
            return
        self._holder = f"{self.id}_{random_source().uid()}"
        try:
            await self._objects.remove(f"{_LEASES}/{self.id}")
            await self._renew()
        except ApiError as error:  # the next renewal retries
            self._log.warning(
                "failed to create the lease of this server; retrying at the next renewal", error=str(error)
            )

    async def run(self) -> None:
        """Renew the lease and delete expired ones, until canceled."""
        collected = monotonic()
        while True:
            await asyncio.sleep(RENEWED * random_source().uniform(1, 1 + _JITTER))
            try:
                await self._renew()
                if monotonic() - collected >= COLLECTED:
                    collected = monotonic()
                    await self._collect()
            except ApiError as error:
                self._log.warning("failed to renew the lease of this server", error=str(error))

    async def close(self) -> None:
        """Delete the lease, if one was created."""
        if not self._holder:
            return
        try:
            await self._objects.remove(f"{_LEASES}/{self.id}")
        except ApiError as error:
            self._log.warning("failed to delete the lease of this server", error=str(error))

    async def _renew(self) -> None:
        now = format_micro(utc_now())
        labels = {IDENTITY_LABEL: API_SERVER, f"{PLATFORM_DOMAIN}/hostname": socket.gethostname()}
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": _HELD, "renewTime": now}
        metadata = {"name": self.id, "namespace": SYSTEM_NAMESPACE, "labels": labels}
        wanted = {"kind": "Lease", "apiVersion": _API, "metadata": metadata, "spec": spec}
        await self._objects.ensure(_LEASES, wanted)

    async def _collect(self) -> None:
        rows = self._store.snapshot(_STORED).items(prefix=f"{SYSTEM_NAMESPACE}/")
        for row in [row for row in rows if row.labels.get(IDENTITY_LABEL) == API_SERVER]:
            if is_over(row.field("spec.renewTime"), row.field("spec.leaseDurationSeconds")):
                path, revision = f"{_LEASES}/{row.name}", str(row.revision)
                await self._objects.remove(path, row.field("metadata.uid"), revision)  # not if it was renewed meanwhile


def is_over(renewed: str, seconds: str) -> bool:
    """Return whether a lease has expired. Leases without a renew time or duration count as expired."""
    moment = time_of(renewed)
    return moment is None or not seconds or (utc_now() - moment).total_seconds() > int(seconds)
