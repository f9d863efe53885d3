"""The steps after the start, by the names of their health checks."""

from collections.abc import Awaitable, Callable
from functools import partial

from apiserver_stub.bootstrap.flow_control import ensure_flow_control
from apiserver_stub.bootstrap.objects import ClusterInfo, Handle, Objects
from apiserver_stub.bootstrap.policy import ensure_policy
from apiserver_stub.bootstrap.publish import (
    ensure_authorities,
    ensure_namespaces,
    ensure_service,
    ensure_service_ranges,
    ensure_token_tracking,
)
from apiserver_stub.bootstrap.unreadable import remove_unreadable_at
from apiserver_stub.verbs import RequestScope
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.base.tasks import all_of

# The system priority classes.

_API = f"scheduling.{GROUP_DOMAIN}/v1"
_SYSTEM = {
    "system-node-critical": (2_000_001_000, "For pods that their node cannot do without, where they are."),
    "system-cluster-critical": (2_000_000_000, "For pods that the cluster cannot do without, wherever they run."),
}


async def ensure_priority_classes(objects: Objects, _: ClusterInfo) -> None:
    """Create both system classes; existing ones are not changed."""
    wanted = (
        {
            "kind": "PriorityClass",
            "apiVersion": _API,
            "metadata": {"name": name},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, (value, description) in _SYSTEM.items()
    )
    await all_of(*(objects.ensure_revised(f"/apis/{_API}/priorityclasses", each, lambda _: None) for each in wanted))


_NAMESPACES = "poststarthook/start-system-namespaces-controller"
_POLICY = "poststarthook/rbac/bootstrap-roles"
_STEPS: dict[str, Callable[[Objects, ClusterInfo], Awaitable[None]]] = {
    _NAMESPACES: ensure_namespaces,
    "poststarthook/start-kubernetes-service-cidr-controller": ensure_service_ranges,
    "poststarthook/bootstrap-controller": ensure_service,
    "poststarthook/start-cluster-authentication-info-controller": ensure_authorities,
    "poststarthook/start-legacy-token-tracking-controller": ensure_token_tracking,
    "poststarthook/scheduling/bootstrap-system-priority-classes": ensure_priority_classes,
    "poststarthook/priority-and-fairness-config-producer": ensure_flow_control,
}
HOOKS = (*_STEPS, _POLICY)


async def bootstrap(handle: Handle, scope: RequestScope, cluster: ClusterInfo, done: Callable[[str], None]) -> None:
    """Create the objects that every cluster has. Repeated calls correct changed objects and write nothing else.

    `done` is called with the name of each completed step. Raises the `ApiError` of a failed request.
    """
    objects = Objects(handle, partial(remove_unreadable_at, scope))

    async def take(name: str) -> None:
        policy = name == _POLICY
        await (ensure_policy(scope, objects, cluster.features) if policy else _STEPS[name](objects, cluster))
        done(name)

    await take(_NAMESPACES)  # the others need namespaces
    await all_of(*(take(name) for name in HOOKS if name != _NAMESPACES))
