"""Reads and writes claims and volumes. Our own writes are visible at once."""

from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.resource import Key
from controller_manager.common.api.storage import (
    AVAILABLE,
    BOUND,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
)
from controller_manager.framework import Context, update_status

from .changes import bound_claim, bound_volume, in_phase, unbound_volume, with_bound_status, with_phase
from .volumes import VolumeIndex


class Objects:
    """The claims and volumes of the cluster.

    Writes go to `volumes` before the watch shows them, so that a volume is never given to two claims.
    """

    def __init__(self, context: Context) -> None:
        self.volumes = VolumeIndex()
        self._client = context.client
        self._claims = context.informers.get(PERSISTENT_VOLUME_CLAIMS)

    def claim(self, key: Key) -> PersistentVolumeClaim | None:
        """Return a claim from the cache, or None."""
        return self._claims.get(key)

    async def fresh_claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """Return the claim from the server under the name that a volume is bound to, or None."""
        reference = volume.spec.claim_ref
        if reference is None:
            return None
        try:
            return await self._client.get(PERSISTENT_VOLUME_CLAIMS, Key(reference.namespace, reference.name))
        except NotFound:
            return None

    async def fresh_volume(self, name: str) -> PersistentVolume | None:
        """Return a volume from the server, or None."""
        try:
            return await self._client.get(PERSISTENT_VOLUMES, Key("", name))
        except NotFound:
            return None

    async def bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Write what is missing until volume and claim are bound to each other. The volume is written first."""
        self.volumes.reserve(volume.metadata.name)
        try:
            volume = await self.write_volume(volume, bound_volume(volume, claim))
            volume = await self.write_phase(volume, BOUND)
            claim = await self.write_claim(claim, bound_claim(claim, volume))
            await update_status(self._client, PERSISTENT_VOLUME_CLAIMS, claim, with_bound_status(claim, volume))
        finally:
            self.volumes.release(volume.metadata.name)

    async def unbind(self, volume: PersistentVolume) -> None:
        """Unbind a volume. A volume that a user reserved keeps its reservation."""
        volume = await self.write_volume(volume, unbound_volume(volume))
        await self.write_phase(volume, AVAILABLE)

    async def write_claim(self, before: PersistentVolumeClaim, after: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Write a claim if it has changed. Return the present object."""
        return before if after == before else await self._client.update(PERSISTENT_VOLUME_CLAIMS, after)

    async def write_claim_phase(self, claim: PersistentVolumeClaim, phase: str) -> PersistentVolumeClaim:
        """Write the phase of a claim without a volume."""
        return await update_status(self._client, PERSISTENT_VOLUME_CLAIMS, claim, with_phase(claim, phase))

    async def write_volume(self, before: PersistentVolume, after: PersistentVolume) -> PersistentVolume:
        """Write a volume if it has changed. Return the present object."""
        if after == before:
            return before
        return self._known(await self._client.update(PERSISTENT_VOLUMES, after))

    async def write_phase(self, volume: PersistentVolume, phase: str) -> PersistentVolume:
        """Write the phase of a volume. Return the present object."""
        return await self.write_volume_status(volume, in_phase(volume, phase))

    async def write_volume_status(self, before: PersistentVolume, after: PersistentVolume) -> PersistentVolume:
        """Write the status of a volume if it has changed. Return the present object."""
        return self._known(await update_status(self._client, PERSISTENT_VOLUMES, before, after))

    async def create_volume(self, volume: PersistentVolume) -> None:
        """Create a volume."""
        await self._client.create(PERSISTENT_VOLUMES, volume)

    def _known(self, volume: PersistentVolume) -> PersistentVolume:
        self.volumes.renew(volume)
        return volume
