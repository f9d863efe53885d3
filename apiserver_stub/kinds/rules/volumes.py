"""Validation of a Pod's volumes and of PersistentVolumeClaims."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import (
    KindRules,
    ValueRule,
    between,
    both,
    chosen,
    each,
    fixed_as,
    form,
    if_any,
    need,
    one_of,
    outcome,
    record,
    within,
)
from apiserver_stub.kinds.rules.env import FILE_FIELD, amount_of
from apiserver_stub.kinds.rules.formats import (
    LABEL,
    NOT_NEGATIVE,
    SUBDOMAIN,
    absolute,
    descending,
    lower_subdomain,
    no_backsteps,
)
from apiserver_stub.kinds.rules.metadata import CLAIM_METADATA
from apiserver_stub.kinds.rules.quantities import amounts, compares, positive, resource_name
from apiserver_stub.kinds.rules.selectors import SELECTOR
from apiserver_stub.kinds.values.trees import get_in, same_but
from controller_manager.common.api.tree import Tree

_SIZE = ("resources", "requests", "storage")
_SIZE_AT = place("spec.resources.requests.storage")
_CLASS_AT = place("spec.volumeAttributesClassName")
_SINGLE_POD = "ReadWriteOncePod"
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _SINGLE_POD)
_SAME_MODE = fixed_as("spec.volumeMode", "volumeMode")
_FROZEN = "spec is immutable, except the storage and the volumeAttributesClassName of a bound claim"


def access_modes(modes: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that access modes are known. ReadWriteOncePod excludes the others."""
    for mode in modes:
        if mode not in _ACCESS_MODES:
            errors.unsupported(at, mode, _ACCESS_MODES)
    if _SINGLE_POD in modes and len(set(modes)) > 1:
        errors.forbidden(at, "may not use ReadWriteOncePod with other access modes")


def _storage(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    here = ((at, "resources"), key("storage"))
    size = get_in(spec, _SIZE)
    if size is None:
        errors.required(here)
    else:
        positive(size, here, errors)


def _group(source: Any, at: FieldPath, errors: ErrorList) -> None:
    if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
        errors.invalid(
            at, source.get("kind", ""), "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        )


def _same_source(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and reference and not reference.get("namespace") and source != reference:
        errors.invalid(at, {}, "must match dataSourceRef")


_SOURCE = both(record({"apiGroup": if_any(SUBDOMAIN)}, need("kind", "name")), _group)
CLAIM_SPEC = record({
    "accessModes": access_modes, "selector": SELECTOR, "storageClassName": if_any(SUBDOMAIN),
    "volumeAttributesClassName": if_any(SUBDOMAIN), "dataSource": _SOURCE,
    "dataSourceRef": both(_SOURCE, record({"namespace": if_any(LABEL)})),
}, need("accessModes", why="at least 1 access mode is required"), _storage, _same_source)  # fmt: skip


def _change(new: Tree, old: Tree, errors: ErrorList) -> None:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    bound = get_in(new, ("status", "phase")) == "Bound"
    once = [name for name in ("volumeName", "storageClassName") if not before.get(name)]
    if bound and "volumeAttributesClassName" in spec:
        once.append("volumeAttributesClassName")
    if not same_but(("resources", *once), spec, before) or not _same_resources(spec, before, bound):
        errors.forbidden((None, "spec"), _FROZEN)
    _size_change(get_in(spec, _SIZE), get_in(before, _SIZE), get_in(old, ("status", "capacity", "storage")), errors)
    _SAME_MODE(new, old, errors)
    if get_in(old, ("status", "currentVolumeAttributesClassName")) and not spec.get("volumeAttributesClassName"):
        errors.forbidden(_CLASS_AT, "may not be removed once a volume has it")


def _same_resources(spec: Tree, before: Tree, bound: bool) -> bool:
    new, old = spec.get("resources") or {}, before.get("resources") or {}
    if not bound:
        return bool(new == old)
    requests = [resources.get("requests") or {} for resources in (new, old)]
    return same_but(("requests",), new, old) and same_but(("storage",), *requests)


def _size_change(new: Any, old: Any, capacity: Any, errors: ErrorList) -> None:
    """Check that a smaller request stays above `status.capacity`. A claim may shrink while its expansion is pending."""
    wanted = new or "0"
    if not compares(wanted, old, Decimal.__ge__) and compares(wanted, capacity or "0", Decimal.__le__):
        errors.forbidden(_SIZE_AT, "field can not be less than status.capacity")


_STATUS = record(dict.fromkeys(("capacity", "allocatedResources"), amounts(resource_name)))
RULES = {
    "v1/PersistentVolumeClaim": KindRules(
        change=_change, subresources={"status": outcome(within("status", _STATUS))}, spec=CLAIM_SPEC,
    ),
}  # fmt: skip


_MODE = between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
_PATH_TYPES = ("BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_SHORTEST_TOKEN, _LONGEST_TOKEN = 600, 1 << 32
_TOKEN_LIFE = both(
    between(_SHORTEST_TOKEN, 2**63, "may not specify a duration less than 10 minutes"),
    between(-(2**63), _LONGEST_TOKEN, "may not specify a duration larger than 2^32 seconds"),
)


def _inner_path(path: str) -> str:
    return "must not start with '..'" if path.startswith("..") else descending(path)


_ITEMS = each(record({"path": form(_inner_path), "mode": _MODE}, need("key", "path")))


def _size(value: Any, at: FieldPath, errors: ErrorList) -> None:
    if not compares(value, "0", Decimal.__ge__):
        errors.forbidden(at, NOT_NEGATIVE)


def _one_reference(item: Any, at: FieldPath, errors: ErrorList) -> None:
    if "fieldRef" in item:
        FILE_FIELD(item["fieldRef"], (at, "fieldRef"), errors)
        if "resourceFieldRef" in item:
            errors.invalid(at, "resource", "`fieldRef` and `resourceFieldRef` exclude each other")
    elif "resourceFieldRef" in item:
        amount_of(item["resourceFieldRef"], (at, "resourceFieldRef"), errors)
    else:
        errors.required(at, "one of fieldRef and resourceFieldRef is required")


_FILE = record({"path": form(_inner_path), "mode": _MODE}, need("path"), _one_reference)


def _files(source: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the files of a source. Errors are reported at the source."""
    for item in source.get("items") or ():
        _FILE(item, at, errors)


_PROJECTIONS = {
    "secret": record({"items": _ITEMS}, need("name")),
    "configMap": record({"items": _ITEMS}, need("name")),
    "downwardAPI": _files,
    "serviceAccountToken": record({"expirationSeconds": _TOKEN_LIFE}),
    "clusterTrustBundle": record({"path": form(_inner_path)}),
}
_SOURCE_OF_FILES = record(_PROJECTIONS)


def _projected(source: Any) -> Iterator[str]:
    """Yield the file paths that a source of a projected volume creates."""
    for name in ("secret", "configMap", "downwardAPI"):
        yield from (item.get("path", "") for item in (source.get(name) or {}).get("items") or ())
    yield (source.get("clusterTrustBundle") or {}).get("path", "")


def _projection(volume: Any, at: FieldPath, errors: ErrorList) -> None:
    seen: set[str] = set()
    for index, source in enumerate(volume.get("sources") or ()):
        here = ((at, "sources"), index)
        _SOURCE_OF_FILES(source, here, errors)
        if "serviceAccountToken" in source:
            _token_path(source["serviceAccountToken"].get("path", ""), (at, "path"), errors)
        if len(source) > 1:
            errors.forbidden(here, _MORE)
        for path in _projected(source):
            if path and path in seen:
                errors.invalid(at, path, "conflicting duplicate paths")
            seen.add(path)


def _token_path(path: str, at: FieldPath, errors: ErrorList) -> None:
    if not path:
        errors.required(at)
    elif why := _inner_path(path):
        errors.invalid(at, path, why)


_FILES = {"items": _ITEMS, "defaultMode": _MODE}
_PARTITION = between(0, 255)
_LUN = between(0, 255)
_NAMED = record({}, need("name"))
_CACHING, _DISKS = ("None", "ReadOnly", "ReadWrite"), ("Dedicated", "Managed", "Shared")
_BLOB, _MANAGED = "https://{account}.blob.core.windows.net/{container}/{disk}.vhd", "/subscriptions/{subscription}/..."
_ISCSI_NAME = re.compile(
    r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9-.]+)(:[^,;*&$|\s]+)?|eui\.[A-Fa-f0-9]{16}|naa\.[A-Fa-f0-9]{32}", re.ASCII
)


def _azure_disk(disk: Any, at: FieldPath, errors: ErrorList) -> None:
    kind, uri = disk.get("kind"), disk.get("diskURI", "")
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errors.unsupported((at, "diskURI"), uri, (_MANAGED,))
    elif kind is not None and kind != "Managed" and not uri.startswith("https://"):
        errors.unsupported((at, "diskURI"), uri, (_BLOB,))


def _fibre_channel(channel: Any, at: FieldPath, errors: ErrorList) -> None:
    ports, ids = channel.get("targetWWNs"), channel.get("wwids")
    if not ports and not ids:
        errors.required((at, "targetWWNs"), "needs targetWWNs or wwids")
    elif ports and ids:
        errors.invalid((at, "targetWWNs"), ports, "targetWWNs and wwids exclude each other")
    if ports and "lun" not in channel:
        errors.required((at, "lun"), "is needed with targetWWNs")
    elif ports:
        _LUN(channel["lun"], (at, "lun"), errors)


def _dataset(source: Any, at: FieldPath, errors: ErrorList) -> None:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID")
    if not name and not uuid:
        errors.required(at, "one of datasetName and datasetUUID is required")
    elif name and uuid:
        errors.invalid(at, "resource", "datasetName and datasetUUID exclude each other")
    if "/" in name:
        errors.invalid((at, "datasetName"), name, "must not contain '/'")


def _iscsi_name(text: str) -> str:
    return "" if _ISCSI_NAME.fullmatch(text) else "must be a name of the form iqn, eui or naa"


def _iscsi(source: Any, at: FieldPath, errors: ErrorList) -> None:
    if why := _iscsi_name(source.get("initiatorName", "iqn.2000-01.a")):
        errors.invalid((at, "initiatorname"), source["initiatorName"], why)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and "secretRef" not in source:
        errors.required((at, "secretRef"))


def _registry(text: str) -> str:
    ends = all(pair.count(":") == 1 or (pair.startswith("[") and "]:" in pair) for pair in text.split(","))
    return "" if ends else "must be host:port, or several of them joined by commas"


def _reported_as(name: str, rule: ValueRule) -> ValueRule:
    """Return a rule that reports errors under kube-apiserver's other name for a field."""

    def renamed(source: Any, at: FieldPath, errors: ErrorList) -> None:
        around, _ = at or (None, "")
        rule(source, (around, name), errors)

    return renamed


# Sources shared by pods and persistent volumes, in the order in which a second one is reported.
SHARED: Mapping[str, ValueRule] = MappingProxyType({
    "hostPath": record({"path": form(no_backsteps), "type": if_any(one_of(*_PATH_TYPES))}, need("path")),
    "gcePersistentDisk": _reported_as("persistentDisk", record({"partition": _PARTITION}, need("pdName"))),
    "awsElasticBlockStore": record({"partition": _PARTITION}, need("volumeID")),
    "nfs": record({"path": form(absolute)}, need("server"), need("path", why="is what is mounted")),
    "iscsi": record({"iqn": form(_iscsi_name), "lun": _LUN}, need("targetPortal", "iqn"), _iscsi),
    "glusterfs": record({}, need("endpoints", "path")),
    "flocker": _dataset,
    "rbd": record({}, need("monitors", "image")),
    "cinder": record({"secretRef": _NAMED}, need("volumeID")),
    "cephfs": record({}, need("monitors")),
    "quobyte": record({"registry": form(_registry)}, need("registry", "volume")),
    "fc": _fibre_channel,
    "flexVolume": record({}, need("driver")),
    "azureFile": record({}, need("secretName", "shareName")),
    "vsphereVolume": record({}, need("volumePath")),
    "photonPersistentDisk": record({}, need("pdID")),
    "portworxVolume": record({}, need("volumeID")),
    "azureDisk": record({"cachingMode": one_of(*_CACHING), "kind": one_of(*_DISKS)}, need("diskName", "diskURI"),
                        _azure_disk),
    "storageos": record({"volumeName": LABEL, "volumeNamespace": LABEL, "secretRef": _NAMED}, need("volumeName")),
    "scaleIO": record({}, need("gateway", "system", "volumeName")),
})  # fmt: skip


def _secret_of_driver(reference: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the name of a secret. An invalid name is reported at the driver, as kube-apiserver does."""
    around, _ = at or (None, "")
    if not reference.get("name"):
        errors.required((at, "name"))
    else:
        SUBDOMAIN(reference["name"], (around, "name"), errors)


_ALONE: dict[str, ValueRule] = {
    "emptyDir": record({"sizeLimit": _size}),
    "gitRepo": record({"directory": form(descending)}, need("repository")),
    "secret": record(_FILES, need("secretName")),
    "configMap": record(_FILES, need("name")),
    "downwardAPI": record({"defaultMode": _MODE}, _files),
    "persistentVolumeClaim": need("claimName"),
    "projected": record({"defaultMode": _MODE}, _projection),
    "csi": record({"driver": form(lower_subdomain), "nodePublishSecretRef": _secret_of_driver},
                  need("driver")),
    "ephemeral": record({"volumeClaimTemplate": record({"metadata": CLAIM_METADATA, "spec": CLAIM_SPEC})},
                        need("volumeClaimTemplate")),
    "image": record({"pullPolicy": one_of("Always", "IfNotPresent", "Never")}),
}  # fmt: skip
_ORDER = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
    "flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
    "storageos", "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
# The names of surplus sources as kube-apiserver spells them.
_SPELLINGS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_MORE = "may not specify more than 1 volume type"
VOLUME = both(
    record({"name": LABEL}),
    chosen({name: {**SHARED, **_ALONE}[name] for name in _ORDER}, "must specify a volume type", _MORE, _SPELLINGS),
)


def volumes(values: Any, at: FieldPath, errors: ErrorList) -> dict[str, Any]:
    """Validate the volumes of a pod. Return the valid ones by name."""
    known: dict[str, Any] = {}
    for index, volume in enumerate(values):
        before, name = len(errors.causes), volume.get("name", "")
        VOLUME(volume, (at, index), errors)
        if not name:
            errors.required(((at, index), "name"))
        elif name in known:
            errors.duplicate(((at, index), "name"), name)
        if len(errors.causes) == before:
            known[name] = volume
    return known
