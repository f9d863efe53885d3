"""The rules of persistent volumes, storage classes, drivers, and attachments of volumes to nodes."""

from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import (
    Change,
    KindRules,
    Rule,
    at_least,
    both,
    changes,
    chosen,
    distinct,
    distinct_by,
    each,
    filled,
    fixed,
    form,
    if_any,
    need,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import LABEL, QUALIFIED, SUBDOMAIN, lower_subdomain, no_backsteps
from apiserver_stub.kinds.rules.quantities import not_negative, positive
from apiserver_stub.kinds.rules.selectors import NODE_SELECTOR, SELECTOR
from apiserver_stub.kinds.rules.volumes import SHARED, access_modes
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in

_SECRET = record({"name": SUBDOMAIN, "namespace": LABEL}, need("name", "namespace"))
_SECRETS = (
    "controllerExpandSecretRef", "controllerPublishSecretRef", "nodeExpandSecretRef", "nodePublishSecretRef",
    "nodeStageSecretRef",
)  # fmt: skip
# Secrets that may be named later.
_LATER = ("controllerExpandSecretRef", "nodeExpandSecretRef")
_SOURCES: dict[str, Rule] = {
    **SHARED,
    "local": record({"path": form(no_backsteps)}, need("path")),
    "csi": record(
        {"driver": form(lower_subdomain), **dict.fromkeys(_SECRETS, _SECRET)}, need("driver", "volumeHandle"),
    ),
}  # fmt: skip


def _capacity(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    capacity = spec.get("capacity") or {}
    here = (at, "capacity")
    if not capacity:
        errors.required(here)
    elif capacity.keys() != {"storage"}:
        errors.unsupported(here, capacity, ("storage",))
    for name, value in capacity.items():
        positive(value, (here, key(name)), errors)


def _fits(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if "local" in spec and not get_in(spec, ("nodeAffinity", "required")):
        errors.required((at, "nodeAffinity"), "a local volume needs it")
    recycled = spec.get("persistentVolumeReclaimPolicy") == "Recycle"
    if recycled and (get_in(spec, ("hostPath", "path")) or "").rstrip("/") == "" and "hostPath" in spec:
        errors.forbidden((at, "persistentVolumeReclaimPolicy"), "may not be 'Recycle' for all of a host's files")


_SPEC = record({
    "accessModes": access_modes, "storageClassName": SUBDOMAIN,
    "nodeAffinity": record({"required": NODE_SELECTOR}), "volumeAttributesClassName": SUBDOMAIN,
}, need("accessModes"), _capacity, _fits,
    chosen(_SOURCES, "must specify a volume type", "may not specify more than 1 volume type"))  # fmt: skip


def _same_source(new: Tree, old: Tree, errors: ErrorList) -> None:
    sources = [_source(tree.get("spec") or {}) for tree in (new, old)]
    if sources[0] != sources[1]:
        errors.forbidden(place("spec.persistentvolumesource"), IMMUTABLE)


def _source(spec: Tree) -> Tree:
    source = {name: value for name, value in spec.items() if name in _SOURCES}
    if "csi" in source:
        source["csi"] = {name: value for name, value in source["csi"].items() if name not in _LATER}
    return source


def _affinity(new: Tree, old: Tree, errors: ErrorList) -> None:
    path = ("spec", "nodeAffinity")
    before, now = get_in(old, path), get_in(new, path)
    if before and now != before:
        errors.invalid(place("spec.nodeAffinity"), now, IMMUTABLE)


_CHANGE: Change = changes(_same_source, _affinity, fixed("spec.volumeMode"))


_MOST_PARAMETERS, _LARGEST_PARAMETERS = 512, 256 * 1024
_LONGEST_ID, _LONGEST_ERROR = 256, 1024 * 256
_DRIVER = form(lower_subdomain)


def _parameters(values: Any, at: FieldPath, errors: ErrorList) -> None:
    if len(values) > _MOST_PARAMETERS:
        errors.too_long(at, _MOST_PARAMETERS, "items")
    if "" in values:
        errors.invalid(at, "", "a name may not be empty")
    if sum(len(name) + len(value) for name, value in values.items()) > _LARGEST_PARAMETERS:
        errors.too_long(at, _LARGEST_PARAMETERS)


def _provisioner(name: str) -> str:
    return names.qualified(name.lower())


_TOPOLOGIES = each(record({"matchLabelExpressions": both(
    each(record({"key": QUALIFIED, "values": both(filled(), distinct())})), distinct_by("key"),
)}))  # fmt: skip
_CLASS = record(
    {
        "provisioner": form(_provisioner),
        "parameters": _parameters,
        "allowedTopologies": _TOPOLOGIES,
        "reclaimPolicy": if_any(one_of("Delete", "Retain")),
    }
)
_ATTRIBUTES = record(
    {"driverName": _DRIVER, "parameters": _parameters},
    need("parameters", why="must contain at least one key/value pair"),
)


def _attached(source: Any, at: FieldPath, errors: ErrorList) -> None:
    given = [name for name in ("inlineVolumeSpec", "persistentVolumeName") if source.get(name)]
    if not given:
        errors.required(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    elif len(given) > 1:
        errors.forbidden(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")


_ATTACHMENT = record({
    "attacher": _DRIVER, "nodeName": SUBDOMAIN,
    "source": record({"persistentVolumeName": SUBDOMAIN}, _attached),
})  # fmt: skip


def _attachment_status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    for name in ("attachError", "detachError"):
        error = (new.get("status") or {}).get(name) or {}
        if len(error.get("message", "")) > _LONGEST_ERROR:
            errors.too_long(((place("status"), name), "message"), _LONGEST_ERROR)


_TOKENS = both(each(record({"expirationSeconds": at_least(600)})), distinct_by("audience"))
_MODES = ("Ephemeral", "Persistent")


def _lifecycle_modes(modes: Any, at: FieldPath, errors: ErrorList) -> None:
    for mode in modes:
        if mode not in _MODES:
            errors.unsupported(at, mode, _MODES)


_CSI_DRIVER = record({
    "tokenRequests": _TOKENS, "volumeLifecycleModes": _lifecycle_modes,
    "nodeAllocatableUpdatePeriodSeconds": at_least(10),
})  # fmt: skip
_NODE_DRIVER = record({
    "name": _DRIVER, "allocatable": record({"count": at_least(0)}), "topologyKeys": each(QUALIFIED),
}, need("nodeID"))  # fmt: skip


def _node_ids(drivers: Any, at: FieldPath, errors: ErrorList) -> None:
    for index, driver in enumerate(drivers):
        if len(driver.get("nodeID", "")) > _LONGEST_ID:
            errors.too_long(((at, index), "nodeID"), _LONGEST_ID)


def _drivers_stay(new: Tree, old: Tree, errors: ErrorList) -> None:
    """An entry of a driver never changes; drivers come and go."""
    known = {d.get("name"): d for d in (old.get("spec") or {}).get("drivers") or ()}
    for index, driver in enumerate((new.get("spec") or {}).get("drivers") or ()):
        before = known.get(driver.get("name"))
        if before is not None and {**before, "allocatable": None} != {**driver, "allocatable": None}:
            errors.invalid((place("spec.drivers"), index), driver, IMMUTABLE)


_CAPACITY = record({
    "nodeTopology": SELECTOR, "storageClassName": SUBDOMAIN, "capacity": not_negative,
    "maximumVolumeSize": not_negative,
}, need("storageClassName"))  # fmt: skip

RULES = {
    "v1/PersistentVolume": KindRules(within("spec", _SPEC), _CHANGE),
    "storage.k8s.io/v1/StorageClass": KindRules(
        _CLASS,
        fixed("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
    ),
    "storage.k8s.io/v1/VolumeAttributesClass": KindRules(_ATTRIBUTES, fixed("driverName", "parameters")),
    "storage.k8s.io/v1/VolumeAttachment": KindRules(
        within("spec", _ATTACHMENT),
        fixed("spec"),
        {"status": _attachment_status},
    ),
    "storage.k8s.io/v1/CSIDriver": KindRules(
        within("spec", _CSI_DRIVER),
        fixed("spec.attachRequired", "spec.volumeLifecycleModes"),
        name=lower_subdomain,
    ),
    "storage.k8s.io/v1/CSINode": KindRules(
        within("spec.drivers", both(each(_NODE_DRIVER), distinct_by("name"), _node_ids)),
        _drivers_stay,
    ),
    "storage.k8s.io/v1/CSIStorageCapacity": KindRules(_CAPACITY, fixed("nodeTopology", "storageClassName")),
}
