"""Default spread constraints of a pod: by its services and its controller."""

from typing import Any

from controller_manager.common.api.apps import REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS
from controller_manager.common.api.core import SERVICES, Pod
from controller_manager.common.api.selectors import LabelSelector, Requirement
from controller_manager.framework import Change, Context, Key, controller_of

from ..shared.pods import services_for
from .requirements import Requirements, SpreadConstraint
from .spread import default_constraints

_OWNERS = {one.kind: one for one in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)}


class DefaultSpread:
    """Finds the default constraints of pods, cached until a workload or a service changes."""

    def __init__(self, context: Context) -> None:
        self._services = context.informers.get(SERVICES)
        self._owners = {kind: context.informers.get(resource) for kind, resource in _OWNERS.items()}
        self._known: dict[tuple[Requirements, str, str], tuple[SpreadConstraint, ...]] = {}

    def note(self, change: Change[Any]) -> None:
        """Clear the cache if a selector has changed."""
        before, after = change.before, change.after
        if before is None or after is None or before.spec.selector != after.spec.selector:
            self._known.clear()

    def of(self, pod: Pod, asked: Requirements) -> tuple[SpreadConstraint, ...]:
        """Return the default constraints of a pod; empty if nothing selects it."""
        owner = controller_of(pod)
        about = (asked, owner.kind, owner.name) if owner is not None else (asked, "", "")
        found = self._known.get(about)
        if found is None:
            selector = self._selector(pod, about[1], about[2])
            found = self._known[about] = () if selector.empty else default_constraints(selector)
        return found

    def _selector(self, pod: Pod, kind: str, name: str) -> LabelSelector:
        labels: dict[str, str] = {}
        for key in services_for(self._services, pod):
            service = self._services.get(key)
            labels.update((service.spec.selector if service is not None else None) or {})
        more: tuple[Requirement, ...] = ()
        informer = self._owners.get(kind)
        owner: Any = informer.get(Key(pod.metadata.namespace, name)) if informer is not None else None
        if owner is not None and kind == REPLICATION_CONTROLLERS.kind:
            labels.update(owner.spec.selector or {})
        elif owner is not None:
            try:
                more = owner.spec.selector.selector().requirements
            except KeyError:
                more = ()
        return LabelSelector((*(Requirement(key, "in", (value,)) for key, value in labels.items()), *more))
