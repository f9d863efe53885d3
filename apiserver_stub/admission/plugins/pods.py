"""Plugins that complete a new pod: tolerations (DefaultTolerationSeconds), RuntimeClass, Priority.

| RuntimeClass: the pod            | result                                                                    |
|----------------------------------|---------------------------------------------------------------------------|
| names no class                   | unchanged; rejected if it sets an overhead                                |
| names a class that is missing    | rejected                                                                  |
| names a class                    | gets its overhead, node selector and tolerations; rejected on conflicts   |

| Priority: the pod, when it is created                | result                                                |
|------------------------------------------------------|-------------------------------------------------------|
| names a class                                        | gets its value and preemption policy; rejected if the |
|                                                      | class is missing                                      |
| names none, and there are default classes            | gets the one with the lowest value, and its name      |
| names none, and there is no default class            | gets 0 and PreemptLowerPriority                       |
| sets priority or policy                              | rejected unless they are the same                     |

An update that omits the fields keeps them. A second default class is rejected.
"""

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import orjson

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.plugins.tolerations import as_trees, merged, tolerations_in
from apiserver_stub.common.flags.admission import AdmissionOptions
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import UnknownError
from controller_manager.common.api.model import Model, ObjectMeta
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log.formats import quote

_PODS = ("pods",)

# Every pod tolerates a not-ready or unreachable node for some time, unless it sets its own tolerations.

_NOT_READY, _UNREACHABLE = (f"node.{PLATFORM_DOMAIN}/{sign}" for sign in ("not-ready", "unreachable"))


def default_toleration_seconds(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin DefaultTolerationSeconds."""
    options = parts.options[AdmissionOptions]
    tolerations = (
        _for_a_while(_NOT_READY, options.default_not_ready_toleration_seconds),
        _for_a_while(_UNREACHABLE, options.default_unreachable_toleration_seconds),
    )
    rule = Rule(partial(tolerate_for_a_while, tolerations), ("create", "update"), _PODS)
    return AdmissionPlugin("DefaultTolerationSeconds", mutating=(rule,))


def tolerate_for_a_while(tolerations: Sequence[Tree], attributes: Attributes) -> None:
    """Add missing default tolerations to a pod that is created or updated."""
    pod = attributes.tree
    spec = pod.get("spec") or {}
    given = spec.get("tolerations") or []
    tolerated = {one.get("key", "") for one in given if one.get("effect", "") in ("", "NoExecute")}
    lacking = [dict(each) for each in tolerations if each["key"] not in tolerated] if "" not in tolerated else None
    if lacking:
        pod["spec"] = {**spec, "tolerations": [*given, *lacking]}


def _for_a_while(sign: str, seconds: int) -> Tree:
    return {"key": sign, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}


# Additions of the runtime class to a new pod: the usual plug-in RuntimeClass; `with_class` is pure.

_RUNTIME_CLASSES = f"runtimeclasses.node.{GROUP_DOMAIN}"


def runtime_class(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin RuntimeClass."""
    classes = RuntimeClasses(parts.store)
    return AdmissionPlugin(
        "RuntimeClass",
        mutating=(Rule(classes.admit, ("create",), _PODS),),
        validating=(Rule(classes.validate, ("create",), _PODS),),
    )


class RuntimeClasses:
    """Rules of new pods; reads classes from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        """Apply the runtime class to a new pod. Raises `Forbidden`."""
        of = self._class(attributes)
        return None if of is None else attributes.run(partial(self._give, attributes, of))

    @staticmethod
    def _give(attributes: Attributes, of: Tree) -> None:
        pod = attributes.tree
        try:
            pod["spec"] = with_class(pod["spec"], of)
        except ValueError as error:
            raise attributes.refused(str(error)) from None

    def validate(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for an overhead that differs from the runtime class."""
        spec = attributes.tree.get("spec") or {}
        of = self._class(attributes)
        overhead = None if of is None else of.get("overhead")
        if overhead is None:
            if "overhead" in spec:
                why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                raise attributes.refused(why)
        elif _amounts(overhead.get("podFixed") or {}) != _amounts(spec.get("overhead") or {}):
            raise attributes.refused(_OTHER_OVERHEAD)

    def _class(self, attributes: Attributes) -> Tree | None:
        """Return the runtime class of a pod, None if it names none. Raises `Forbidden`, and `UnknownError` for an empty
        name.
        """
        name = get_in(attributes.tree, ("spec", "runtimeClassName"))
        if name is None:
            return None
        if not name:
            raise UnknownError("resource name may not be empty")
        row = self._store.get(_RUNTIME_CLASSES, name)
        if row is None:
            raise attributes.refused(f"pod rejected: RuntimeClass {quote(name)} not found")
        return orjson.loads(row.data)  # type: ignore[no-any-return]


_OTHER_OVERHEAD = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


def with_class(spec: Tree, of: Tree) -> Tree:
    """Return the spec of a pod of that class. Raises `ValueError` if `spec` disagrees."""
    added: Tree = {}
    overhead = get_in(of, ("overhead", "podFixed")) or {}
    if of.get("overhead") is not None:
        given = spec.get("overhead") or {}
        if given and _amounts(given) != _amounts(overhead):
            raise ValueError(_OTHER_OVERHEAD)
        added["overhead"] = overhead
    if scheduling := of.get("scheduling"):
        added["nodeSelector"] = _with_selector(spec.get("nodeSelector") or {}, scheduling.get("nodeSelector") or {})
        added["tolerations"] = as_trees(merged(tolerations_in(spec), tolerations_in(scheduling)))
    return {**spec, **{name: value for name, value in added.items() if value}}


def _with_selector(selector: Tree, wanted: Tree) -> Tree:
    for name in sorted(selector.keys() & wanted.keys()):
        if selector[name] != wanted[name]:
            of_class = f"runtimeClass.scheduling.nodeSelector[{name}] = {wanted[name]}"
            raise ValueError(f"conflict: {of_class}; pod.spec.nodeSelector[{name}] = {selector[name]}")
    return {**selector, **wanted}


def _amounts(overhead: Tree) -> Tree:
    return {name: parse(text).number for name, text in overhead.items()}


# The priority of a pod, from the class it names or the default of the cluster: the usual plug-in Priority.

_PRIORITY_CLASSES = f"priorityclasses.scheduling.{GROUP_DOMAIN}"
_FIELDS = ("priority", "preemptionPolicy")
_CONTRADICTED = {
    "priority": "the integer value of priority ({}) must not be provided in pod spec; "
    "priority admission controller computed {} from the given PriorityClass name",
    "preemptionPolicy": "the string value of PreemptionPolicy ({}) must not be provided in pod spec; "
    "priority admission controller computed {} from the given PriorityClass name",
}


def priority(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin Priority."""
    priorities = Priorities(parts.store)
    return AdmissionPlugin(
        "Priority",
        mutating=(Rule(priorities.admit, ("create", "update"), _PODS),),
        validating=(Rule(priorities.validate, ("create", "update"), (_PRIORITY_CLASSES,)),),
    )


class PriorityClass(Model):
    """The fields of a class that decide."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


_STORED = msgspec.json.Decoder(PriorityClass)
_UNSAID = PriorityClass(preemption_policy="PreemptLowerPriority")


def default_of(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """Return the default class: that with the lowest value if there are several; None without one."""
    return min((each for each in classes if each.global_default), key=lambda each: each.value, default=None)


def prioritized(spec: Tree, of: PriorityClass) -> Tree:
    """Return the priority fields of a pod of that class. Raises `ValueError` if `spec` conflicts."""
    given: dict[str, Any] = {"priority": of.value}
    if of.preemption_policy is not None:
        given["preemptionPolicy"] = of.preemption_policy
    for name, value in given.items():
        if spec.get(name) not in (None, value):
            raise ValueError(_CONTRADICTED[name].format(spec[name], value))
    return {"priorityClassName": of.metadata.name, **given} if of.metadata.name else given


class Priorities:
    """Plugin of pods (mutating) and of priority classes (validating); reads classes from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store
        self._default: tuple[int, PriorityClass | None] = (-1, None)

    def admit(self, attributes: Attributes) -> None:
        """Set the priority of a pod. Raises `Forbidden`."""
        pod = attributes.tree
        spec = pod.get("spec") or {}
        before = (attributes.old_object or {}).get("spec") or {}
        if attributes.operation == "update":
            kept = {name: before[name] for name in _FIELDS if name in before and spec.get(name) is None}
        else:
            kept = self._given(attributes, spec)
        if kept:
            pod["spec"] = {**spec, **kept}

    def validate(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for a second default class."""
        if not attributes.tree.get("globalDefault"):
            return
        default = self._usual()
        if default is not None and (attributes.operation == "create" or default.metadata.name != attributes.name):
            why = f"PriorityClass {default.metadata.name} is already marked as default. Only one default can exist"
            raise attributes.refused(why)

    def _given(self, attributes: Attributes, spec: Tree) -> Tree:
        name = spec.get("priorityClassName")
        found = self._named(name) if name else self._usual() or _UNSAID
        if found is None:
            raise attributes.refused(f"no PriorityClass with name {name} was found")
        try:
            return prioritized(spec, found)
        except ValueError as error:
            raise attributes.refused(str(error)) from None

    def _named(self, name: str) -> PriorityClass | None:
        row = self._store.get(_PRIORITY_CLASSES, name)
        return None if row is None else _STORED.decode(row.data)

    def _usual(self) -> PriorityClass | None:
        """Return the default class. Cached until classes change."""
        changes = self._store.history(_PRIORITY_CLASSES).end
        if self._default[0] != changes:
            rows = self._store.snapshot(_PRIORITY_CLASSES).items()
            classes = (_STORED.decode(row.data) for row in rows if row.field("globalDefault") == "true")
            self._default = changes, default_of(classes)
        return self._default[1]
