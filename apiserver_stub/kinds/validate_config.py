"""The rules of stored configuration: ConfigMaps, Secrets, volumes and their claims, roles, priorities, leases."""

from binascii import a2b_base64
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.problems import duplicate, forbidden, invalid, required, too_long, too_many
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts, get_in, same_but
from apiserver_stub.kinds.validate_common import at_least, unchanged
from controller_manager.api.errors import Cause

DATA_LIMIT = 1024 * 1024
_HIGHEST_PRIORITY = 1_000_000_000
_FROZEN = "field is immutable when `immutable` is set"
_SECRET_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
})  # fmt: skip
_ACCOUNT = "kubernetes.io/service-account.name"
_CLAIM_MAY_CHANGE = ("resources", "volumeAttributesClassName")
_VOLUME_PLAIN = frozenset({
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName", "volumeAttributesClassName", "volumeMode",
})  # fmt: skip
_EVENT_TEXTS = ("reportingController", "reportingInstance", "action", "reason", "type")
_SHORT = 128


def check_config_map(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of a ConfigMap."""
    plain, binary = new.get("data") or {}, new.get("binaryData") or {}
    for field, values in (("data", plain), ("binaryData", binary)):
        yield from _keys(values, field)
    for key in plain.keys() & binary.keys():
        yield duplicate(f"data[{key}]", key)
    size = sum(len(v.encode()) for v in plain.values()) + sum(len(a2b_base64(v)) for v in binary.values())
    if size > DATA_LIMIT:
        yield too_long("", DATA_LIMIT)
    yield from _frozen(new, old, ("data", "binaryData"))


def check_secret(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of a Secret."""
    data, kind = new.get("data") or {}, new.get("type", "")
    yield from _keys(data, "data")
    if sum(len(a2b_base64(value)) for value in data.values()) > DATA_LIMIT:
        yield too_long("data", DATA_LIMIT)
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        yield required("data[username]")
    annotations = get_in(new, ("metadata", "annotations")) or {}
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_ACCOUNT):
        yield required(f"metadata.annotations[{_ACCOUNT}]")
    yield from unchanged(new, old, "type")
    yield from _frozen(new, old, ("data",))


def check_claim(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of a PersistentVolumeClaim."""
    spec = new.get("spec") or {}
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    if not get_in(spec, ("resources", "requests", "storage")):
        yield required("spec.resources.requests[storage]")
    if old is None:
        return
    before = old.get("spec") or {}
    bound = () if before.get("volumeName") else ("volumeName",)
    named = () if before.get("storageClassName") else ("storageClassName",)
    if not same_but((*_CLAIM_MAY_CHANGE, *bound, *named), spec, before):
        yield forbidden("spec", "is immutable after creation except resources.requests and volumeAttributesClassName")


def check_volume(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """All problems of a PersistentVolume."""
    spec = new.get("spec") or {}
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    if not get_in(spec, ("capacity", "storage")):
        yield required("spec.capacity")
    sources = sorted(spec.keys() - _VOLUME_PLAIN)
    if not sources:
        yield required("spec", "must specify a volume type")
    for extra in sources[1:]:
        yield forbidden(f"spec.{extra}", "may not specify more than 1 volume type")


def check_role(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """All problems of a Role or ClusterRole."""
    for i, rule in dicts(new.get("rules")):
        field = f"rules[{i}]"
        if rule.get("verbs") == []:
            yield required(f"{field}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            if new.get("kind") == "Role":
                yield invalid(f"{field}.nonResourceURLs", rule["nonResourceURLs"], "only a ClusterRole can have them")
            continue
        for name in ("apiGroups", "resources"):
            if not rule.get(name):
                yield required(f"{field}.{name}", "resource rules must supply at least one")


def check_binding(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of a RoleBinding or ClusterRoleBinding."""
    yield from unchanged(new, old, "roleRef")
    for i, subject in dicts(new.get("subjects")):
        if subject.get("kind") != "ServiceAccount":
            continue
        if not subject.get("namespace"):
            yield required(f"subjects[{i}].namespace")
        if subject.get("name") and (why := names.subdomain(subject["name"])):
            yield invalid(f"subjects[{i}].name", subject["name"], why)


def check_priority_class(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of a PriorityClass."""
    name, value = get_in(new, ("metadata", "name")) or "", new.get("value", 0)
    if value > _HIGHEST_PRIORITY and not name.startswith("system-"):
        yield forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}")
    yield from unchanged(new, old, "value", "preemptionPolicy")


def check_storage_class(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """All problems of a StorageClass."""
    yield from unchanged(new, old, "provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")


def check_lease(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """All problems of a Lease."""
    seconds = get_in(new, ("spec", "leaseDurationSeconds"))
    if isinstance(seconds, int) and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    yield from at_least(new, "spec.leaseTransitions")


def check_node(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """All problems of a Node."""
    seen: set[tuple[Any, Any]] = set()
    for i, taint in dicts(get_in(new, ("spec", "taints"))):
        key, effect = taint.get("key", ""), taint.get("effect")
        if key and (why := names.qualified(key)):
            yield invalid(f"spec.taints[{i}].key", key, why)
        if (key, effect) in seen:
            yield duplicate(f"spec.taints[{i}]", taint)
        seen.add((key, effect))


def check_core_event(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """A core Event lives where the object it is about does; events of cluster-wide objects in `default`."""
    about = get_in(new, ("involvedObject", "namespace")) or ""
    namespace = get_in(new, ("metadata", "namespace")) or ""
    if about != namespace and (about or namespace not in ("default", "kube-system")):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")


def check_event(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """An Event of events.k8s.io (document 1, Event resource): a new one says who reports what and why."""
    for name in _EVENT_TEXTS:
        text = new.get(name, "")
        if not text and old is None:
            yield required(name)
        if name != "type" and len(text) > _SHORT:
            yield invalid(name, text, f"can have at most {_SHORT} characters")
    if len((new.get("note") or "").encode()) > 1024:
        yield invalid("note", new["note"], "can have at most 1024 bytes")


def check_crd(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """A definition is named after its resource and stores one version."""
    spec = new.get("spec") or {}
    plural, group, versions = get_in(spec, ("names", "plural")), spec.get("group"), spec.get("versions") or []
    name = get_in(new, ("metadata", "name"))
    if plural and group and name != f"{plural}.{group}":
        yield invalid("metadata.name", name, "must be spec.names.plural+'.'+spec.group")
    if sum(version.get("storage") is True for _, version in dicts(versions)) != 1:
        yield invalid("spec.versions", len(versions), "must have exactly one version marked as storage version")


def check_slice_of_devices(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """A ResourceSlice carries a bounded number of devices."""
    devices = get_in(new, ("spec", "devices")) or []
    if len(devices) > _SHORT:
        yield too_many("spec.devices", len(devices), _SHORT)


def _keys(values: Tree, field: str) -> Iterator[Cause]:
    for key in values:
        if why := names.data_key(key):
            yield invalid(f"{field}[{key}]", key, why)


def _frozen(new: Tree, old: Tree | None, fields: tuple[str, ...]) -> Iterator[Cause]:
    if old is None or not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", _FROZEN)
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield forbidden(field, _FROZEN)
