"""Plugins that complete a new pod: tolerations (DefaultTolerationSeconds), RuntimeClass, Priority, ServiceAccount.

| RuntimeClass: the pod            | is given                                                                  |
|----------------------------------|---------------------------------------------------------------------------|
| names no class                   | nothing; an overhead of its own is refused                                |
| names a class that is not there  | is refused                                                                |
| names a class                    | its overhead, node selector and tolerations; refused if it says otherwise |

| Priority: the pod, when it is created                | is given                                              |
|------------------------------------------------------|-------------------------------------------------------|
| names a class                                        | its value and preemption policy; refused if not there |
| names none, and classes are the default              | the one of the lowest value, its name too             |
| names none, and no class is the default              | 0 and PreemptLowerPriority                            |
| says a priority or policy itself                     | refused unless it is the same                         |

An update that leaves them out means "as they are". A second class cannot be the default.

| ServiceAccount: the pod                           | is given                                                       |
|---------------------------------------------------|----------------------------------------------------------------|
| stands for one of its node (a mirror)             | nothing; it may not name an account                            |
| names no account                                  | `default`; nothing else where that is not there (yet)          |
| names an account that is not there                | is refused                                                     |
| has no pull secrets                               | those of the account                                           |
| wants a token, or says nothing and neither does the account | a volume with a token, mounted where nothing else is |

Upstream refuses pods of namespaces without the account `default` too; here they are let in, so that a server without
controllers takes pods, as one does whose plug-in is turned off.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import orjson

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Operation, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.errors import ApiError, forbidden
from controller_manager.api.model import Model, ObjectMeta
from controller_manager.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.api.quantity import parse
from controller_manager.base.random import random_source

# Every pod tolerates for a while that its node is not ready or out of reach, unless it says how long itself.

_SECONDS = 300
_SIGNS = tuple(f"node.{PLATFORM_DOMAIN}/{sign}" for sign in ("not-ready", "unreachable"))


async def tolerate_for_a_while(attributes: Attributes) -> None:
    """Give a pod that is created or updated the tolerations that it lacks.

    They are those of the usual plug-in of that purpose, DefaultTolerationSeconds.
    """
    pod = attributes.tree
    given = (pod.get("spec") or {}).get("tolerations") or []
    lacking = [sign for sign in _SIGNS if not any(_speaks_of(sign, one) for one in given)]
    if lacking:
        pod["spec"] = {**(pod.get("spec") or {}), "tolerations": [*given, *map(_for_a_while, lacking)]}


def _speaks_of(sign: str, toleration: Tree) -> bool:
    return toleration.get("key", "") in ("", sign) and toleration.get("effect", "") in ("", "NoExecute")


def _for_a_while(sign: str) -> Tree:
    return {"key": sign, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS}


# Additions of the runtime class to a new pod: the usual plug-in RuntimeClass; `with_class` is pure.

_RUNTIME_CLASSES = f"runtimeclasses.node.{GROUP_DOMAIN}"


class RuntimeClasses:
    """A mutating plugin that reads classes from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Give a new pod what its class says. Raises `Forbidden`."""
        pod = attributes.tree
        spec = pod.get("spec") or {}
        name = spec.get("runtimeClassName")
        if not name and "overhead" not in spec:
            return
        row = self._store.get(_RUNTIME_CLASSES, name) if name else None
        if name and row is None:
            raise _refused(attributes, f"there is no RuntimeClass {name}")
        try:
            pod["spec"] = with_class(spec, orjson.loads(row.data) if row else {})
        except ValueError as error:
            raise _refused(attributes, str(error)) from None


def with_class(spec: Tree, of: Tree) -> Tree:
    """Return the spec of a pod of that class, which is empty for a pod of none. Raises `ValueError` if `spec`
    disagrees.
    """
    overhead = get_in(of, ("overhead", "podFixed")) or {}
    said = spec.get("overhead") or {}
    if said and _amounts(said) != _amounts(overhead):
        raise ValueError("spec.overhead is not what the runtime class of the pod says")
    selector, wanted = spec.get("nodeSelector") or {}, get_in(of, ("scheduling", "nodeSelector")) or {}
    for name in sorted(selector.keys() & wanted.keys()):
        if selector[name] != wanted[name]:
            raise ValueError(f"spec.nodeSelector[{name}] is {selector[name]}, and {wanted[name]} in the runtime class")
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in get_in(of, ("scheduling", "tolerations")) or () if one not in tolerations]
    added = {"overhead": overhead, "nodeSelector": {**selector, **wanted}, "tolerations": tolerations}
    return {**spec, **{name: value for name, value in added.items() if value}}


def _amounts(overhead: Tree) -> Tree:
    return {name: parse(text).number for name, text in overhead.items()}


# The priority of a pod, from the class it names or the default of the cluster: the usual plug-in Priority.

_PRIORITY_CLASSES = f"priorityclasses.scheduling.{GROUP_DOMAIN}"
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
        row = self._store.get(_PRIORITY_CLASSES, name)
        return None if row is None else _STORED.decode(row.data)

    def _usual(self) -> PriorityClass | None:
        """Return the class of pods that name none, found anew once classes have changed."""
        changes = self._store.history(_PRIORITY_CLASSES).end
        if self._default[0] != changes:
            rows = self._store.snapshot(_PRIORITY_CLASSES).items()
            classes = (_STORED.decode(row.data) for row in rows if row.field("globalDefault") == "true")
            self._default = changes, default_of(classes)
        return self._default[1]


def _refused(attributes: Attributes, why: str) -> ApiError:
    return forbidden(attributes.kind.group, attributes.kind.plural, attributes.name, why)


_ACCOUNTS, _DEFAULT = "serviceaccounts", "default"
_MIRROR = ("metadata", "annotations", f"{PLATFORM_DOMAIN}/config.mirror")
_PREFIX = "kube-api-access-"
_PATH = f"/var/run/secrets/{PLATFORM_DOMAIN}/serviceaccount"
_LIFETIME = 3607  # seconds; the odd number tells the server that a client may use such a token for longer
_CONTAINERS = ("initContainers", "containers")


class PodAccounts:
    """A mutating plugin that reads accounts from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Give a new pod its account. Raises `Forbidden`."""
        pod, namespace = attributes.tree, attributes.namespace
        spec = pod.get("spec") or {}
        named = spec.get("serviceAccountName") or ""
        if get_in(pod, _MIRROR) is not None:
            if named:
                raise _refused(attributes, "a mirror pod may not name a service account")
            return
        row = self._store.get(_ACCOUNTS, f"{namespace}/{named or _DEFAULT}")
        if row is not None:
            pod["spec"] = with_account(spec, orjson.loads(row.data), random_source().suffix())
        elif named not in ("", _DEFAULT):
            raise _refused(attributes, f"there is no service account {namespace}/{named}")
        else:
            pod["spec"] = {**spec, **_named(_DEFAULT)}


def with_account(spec: Tree, account: Tree, suffix: str) -> Tree:
    """Return the spec of a pod of that account; `suffix` makes the name of a new volume."""
    new = {**spec, **_named(account["metadata"]["name"])}
    if not new.get("imagePullSecrets") and account.get("imagePullSecrets"):
        new["imagePullSecrets"] = [{"name": each["name"]} for each in account["imagePullSecrets"]]
    wishes = (each.get("automountServiceAccountToken") for each in (spec, account))
    if next((wish for wish in wishes if wish is not None), True):
        _mount(new, suffix)
    return new


def _named(account: str) -> Tree:
    return {"serviceAccountName": account, "serviceAccount": account}


def _mount(spec: Tree, suffix: str) -> None:
    """Mount a token in every container that has nothing at its place, in place of `spec`'s own lists."""
    volumes = spec.get("volumes") or []
    known = next((name for each in volumes if (name := each.get("name", "")).startswith(_PREFIX)), "")
    mount = {"name": known or _PREFIX + suffix, "readOnly": True, "mountPath": _PATH}
    mounted = False
    for field in _CONTAINERS:
        if field not in spec:
            continue
        lacking = [not _is_taken(container) for container in spec[field]]
        pairs = zip(spec[field], lacking, strict=True)
        spec[field] = [_mounting(container, mount) if lacks else container for container, lacks in pairs]
        mounted = mounted or any(lacking)
    if mounted and not known:
        spec["volumes"] = [*volumes, {"name": mount["name"], "projected": _token()}]


def _is_taken(container: Tree) -> bool:
    return any(mount.get("mountPath") == _PATH for mount in container.get("volumeMounts") or ())


def _mounting(container: Tree, mount: Tree) -> Tree:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), dict(mount)]}


def _token() -> dict[str, Any]:
    """Return a volume with a token, the authority of the server and the namespace of the pod."""
    return {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _LIFETIME, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    }


_CREATE: tuple[Operation, ...] = ("create",)
_BOTH: tuple[Operation, ...] = ("create", "update")
_PODS = ("pods",)


def service_account(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ServiceAccount."""
    return AdmissionPlugin("ServiceAccount", mutating=(Rule(PodAccounts(parts.store).admit, _CREATE, _PODS),))


def priority(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin Priority."""
    priorities = Priorities(parts.store)
    return AdmissionPlugin(
        "Priority",
        mutating=(Rule(priorities.admit, _BOTH, _PODS),),
        validating=(Rule(priorities.validate, _BOTH, (_PRIORITY_CLASSES,)),),
    )


def default_toleration_seconds(_parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin DefaultTolerationSeconds."""
    return AdmissionPlugin("DefaultTolerationSeconds", mutating=(Rule(tolerate_for_a_while, _BOTH, _PODS),))


def runtime_class(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin RuntimeClass."""
    return AdmissionPlugin("RuntimeClass", mutating=(Rule(RuntimeClasses(parts.store).admit, _CREATE, _PODS),))
