"""Writes of the typed client: server-side apply, and a create that is validated but not stored."""

from typing import Any

from controller_manager.framework import DEPLOYMENTS, PODS, Client, Key, Pod


async def write(client: Client, key: Key, labels: dict[str, str], spec: dict[str, Any], pod: Pod) -> None:
    await client.apply(DEPLOYMENTS, key, {"metadata": {"labels": labels}, "spec": spec}, "my-controller")
    await client.create(PODS, pod, dry_run=True, field_validation="Strict")
