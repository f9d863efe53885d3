"""The history of an object: one numbered ControllerRevision per state; old ones are deleted."""

import msgspec

from controller_manager.framework import (
    DEPLOYMENTS,
    Client,
    ControllerHistory,
    ControllerRevision,
    Deployment,
    Informer,
)

KEPT = 10


async def record(client: Client, owner: Deployment, cache: Informer[ControllerRevision]) -> int:
    """Record the current template of a deployment; return its revision, 0 if the namespace is being deleted."""
    history = ControllerHistory(client, DEPLOYMENTS, owner)
    labels = owner.spec.template.metadata.labels or {}
    revisions = await history.claim(
        cache.list(owner.metadata.namespace), lambda one: labels.items() <= (one.metadata.labels or {}).items()
    )
    data = msgspec.Raw(msgspec.json.encode({"spec": {"template": owner.spec.template}}))
    recorded = await history.record(revisions, data, labels, owner.status.collision_count or 0)
    if recorded is None:
        return 0
    await history.truncate(revisions, live={recorded.revision.metadata.name}, limit=KEPT)
    return recorded.revision.revision
