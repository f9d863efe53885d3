"""The priority of a pod, from the class it names or the default of the cluster: the usual plug-in Priority.

| the pod, when it is created                          | is given                                              |
|------------------------------------------------------|-------------------------------------------------------|
| names a class                                        | its value and preemption policy; refused if not there |
| names none, and classes are the default              | the one of the lowest value, its name too             |
| names none, and no class is the default              | 0 and PreemptLowerPriority                            |
| says a priority or policy itself                     | refused unless it is the same                         |

An update that leaves them out means "as they are". A second class cannot be the default.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.api_request import Tree
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.errors import ApiError, forbidden
from controller_manager.api.model import Model, ObjectMeta
from controller_manager.api.platform import GROUP_DOMAIN

_CLASSES = f"priorityclasses.scheduling.{GROUP_DOMAIN}"
_FIELDS = ("priority", "preemptionPolicy")


class PriorityClass(Model):
    """The fields of a class that decide."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


_STORED = msgspec.json.Decoder(PriorityClass)
_UNSAID = PriorityClass(preemption_policy="PreemptLowerPriority")


def default_of(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """Return the class of pods that name none."""
    return min((each for each in classes if each.global_default), key=lambda each: each.value, default=None)


def prioritized(spec: Tree, of: PriorityClass) -> Tree:
    """Return the priority fields of a pod of that class. Raises `ValueError` if `spec` says otherwise."""
    given: dict[str, Any] = {"priority": of.value}
    if of.preemption_policy is not None:
        given["preemptionPolicy"] = of.preemption_policy
    for name, value in given.items():
        if spec.get(name) not in (None, value):
            raise ValueError(f"spec.{name} is {spec[name]}, but follows from the priority class of the pod: {value}")
    return {"priorityClassName": of.metadata.name, **given} if of.metadata.name else given


class Priorities:
    """Plugin of pods (mutating) and of priority classes (validating); reads classes from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store
        self._default: tuple[int, PriorityClass | None] = (-1, None)

    async def admit(self, attributes: Attributes) -> None:
        """Give a pod its priority. Raises `Forbidden`."""
        pod = attributes.tree
        spec = dict(pod.get("spec") or {})
        before = (attributes.old_object or {}).get("spec") or {}
        if attributes.operation == "update":
            kept = {name: before[name] for name in _FIELDS if name in before and spec.get(name) is None}
        else:
            kept = self._given(attributes, spec)
        pod["spec"] = {**spec, **kept}

    async def validate(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for a second class that is the default."""
        if not attributes.tree.get("globalDefault"):
            return
        default = self._usual()
        if default is not None and (attributes.operation == "create" or default.metadata.name != attributes.name):
            why = f"the PriorityClass {default.metadata.name} is the default already, and one may be"
            raise _refused(attributes, why)

    def _given(self, attributes: Attributes, spec: Tree) -> Tree:
        name = spec.get("priorityClassName")
        found = self._named(name) if name else self._usual() or _UNSAID
        if found is None:
            raise _refused(attributes, f"there is no PriorityClass {name}")
        try:
            return prioritized(spec, found)
        except ValueError as error:
            raise _refused(attributes, str(error)) from None

    def _named(self, name: str) -> PriorityClass | None:
        row = self._store.get(_CLASSES, name)
        return None if row is None else _STORED.decode(row.data)

    def _usual(self) -> PriorityClass | None:
        """Return the class of pods that name none, found anew once classes have changed."""
        changes = self._store.history(_CLASSES).end
        if self._default[0] != changes:
            rows = self._store.snapshot(_CLASSES).items()
            classes = (_STORED.decode(row.data) for row in rows if row.field("globalDefault") == "true")
            self._default = changes, default_of(classes)
        return self._default[1]


def _refused(attributes: Attributes, why: str) -> ApiError:
    return forbidden(attributes.kind.group, attributes.kind.plural, attributes.name, why)
