"""Binds the volume claims of a pod on the chosen node before the pod is bound."""

import msgspec

from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.storage import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PersistentVolumeClaim
from controller_manager.framework import Client

from ..persistent_volume_binder.decide import BOUND_BY_CONTROLLER
from .storage import Storage
from .volumes import SELECTED_NODE, VolumePlan, is_bound

LONGEST = 600.0
"""Maximum seconds that a pod waits for its volumes."""


class VolumesLostError(Exception):
    """The volumes of a pod are not available on the chosen node; the message says why."""


class VolumeBinding(msgspec.Struct):
    """The volume binding of a pod on `node`, until the time `until`. `seen` are claims observed with that
    selected node.
    """

    plan: VolumePlan
    node: str
    until: float
    written: bool = False
    seen: set[Key] = set()

    async def go_on(self, client: Client, storage: Storage, now: float) -> bool:
        """Perform the plan once. Return whether all claims are bound. Raises `VolumesLostError`."""
        if not self.written:
            await self._write(client)
            self.written = True
        claims = [storage.claim(key) for key in self.plan.claims]
        for claim in claims:
            self._check(claim)
        if all(claim is not None and is_bound(claim) for claim in claims):
            return True
        if now >= self.until:
            raise VolumesLostError(f"its volumes were not bound within {LONGEST:.0f} seconds")
        return False

    def _check(self, claim: PersistentVolumeClaim | None) -> None:
        if claim is None or claim.metadata.deletion_timestamp is not None:
            raise VolumesLostError("one of its claims is gone")
        key = key_of(claim)
        if is_bound(claim) or key not in map(key_of, self.plan.made):
            return
        selected = (claim.metadata.annotations or {}).get(SELECTED_NODE)
        if selected == self.node:
            self.seen.add(key)
        elif key in self.seen:
            raise VolumesLostError(f"no volume could be made at {self.node} for claim {key.name}")

    async def _write(self, client: Client) -> None:
        for volume, claim in self.plan.given:
            if volume.spec.claim_ref is None:
                meta = volume.metadata
                change = {
                    "metadata": {
                        "uid": meta.uid,
                        "resourceVersion": meta.resource_version,
                        "annotations": {BOUND_BY_CONTROLLER: "yes"},
                    },
                    "spec": {"claimRef": _reference(claim)},
                }
                await client.patch(PERSISTENT_VOLUMES, key_of(volume), change)
        for claim in self.plan.made:
            if SELECTED_NODE not in (claim.metadata.annotations or {}):
                change = {"metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: self.node}}}
                await client.patch(PERSISTENT_VOLUME_CLAIMS, key_of(claim), change)


def _reference(claim: PersistentVolumeClaim) -> dict[str, str]:
    meta = claim.metadata
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
