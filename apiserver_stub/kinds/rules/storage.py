"""Validation of PersistentVolumes, StorageClasses, CSIDrivers, CSINodes and VolumeAttachments."""

from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import (
    ChangeRule,
    KindRules,
    ValueRule,
    at_least,
    between,
    both,
    changes,
    chosen,
    distinct,
    distinct_by,
    duplicates,
    each,
    filled,
    fixed,
    fixed_as,
    form,
    if_any,
    need,
    never,
    one_of,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import LABEL, QUALIFIED, SUBDOMAIN, no_backsteps
from apiserver_stub.kinds.rules.quantities import not_negative, positive
from apiserver_stub.kinds.rules.selectors import NODE_SELECTOR, SELECTOR
from apiserver_stub.kinds.rules.volumes import SHARED, access_modes
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_LONGEST_DRIVER = 63


def _driver(name: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a driver name: a DNS subdomain of at most 63 characters, ignoring case."""
    if not name:
        errors.required(at)
        return
    if len(name) > _LONGEST_DRIVER:
        errors.too_long(at, _LONGEST_DRIVER)
    form(names.subdomain)(name.lower(), at, errors)


_SECRET = record({"name": SUBDOMAIN, "namespace": LABEL}, need("name", "namespace"))
_SECRETS = (
    "controllerExpandSecretRef", "controllerPublishSecretRef", "nodeExpandSecretRef", "nodePublishSecretRef",
    "nodeStageSecretRef",
)  # fmt: skip
_LATER = "controllerExpandSecretRef"  # this secret may be added later
_ALL_SOURCES: dict[str, ValueRule] = {
    **SHARED,
    "local": record({"path": form(no_backsteps)}, need("path")),
    "csi": record({"driver": if_any(_driver), **dict.fromkeys(_SECRETS, _SECRET)}, need("driver", "volumeHandle")),
}
# In the order in which a second source is reported.
_SOURCES = {
    name: _ALL_SOURCES[name]
    for name in (
        "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
        "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk",
        "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi",
    )
}  # fmt: skip
_SOURCE = chosen(
    _SOURCES, "must specify a volume type", "may not specify more than 1 volume type", {"cephfs": "cephFS"},
)  # fmt: skip


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
    if "volumeAttributesClassName" in spec and "csi" not in spec:
        errors.required((at, "csi"), "is needed with volumeAttributesClassName")


_SPEC = record({
    "accessModes": access_modes, "storageClassName": SUBDOMAIN,
    "nodeAffinity": record({"required": NODE_SELECTOR}, need("required")),
    "volumeAttributesClassName": both(filled(), SUBDOMAIN),
}, need("accessModes"), _capacity, _fits, _SOURCE)  # fmt: skip


def _same_source(new: Tree, old: Tree, errors: ErrorList) -> None:
    now, before = (
        {name: value for name, value in (tree.get("spec") or {}).items() if name in _SOURCES} for tree in (new, old)
    )
    if "csi" in now and "csi" in before and _LATER not in before["csi"]:
        now["csi"] = {name: value for name, value in now["csi"].items() if name != _LATER}
    if now != before:
        errors.forbidden(place("spec.persistentvolumesource"), IMMUTABLE)


def _affinity(new: Tree, old: Tree, errors: ErrorList) -> None:
    path = ("spec", "nodeAffinity")
    before, now = get_in(old, path), get_in(new, path)
    if before and now != before:
        errors.invalid(place("nodeAffinity"), now, IMMUTABLE)


def _class_stays(new: Tree, old: Tree, errors: ErrorList) -> None:
    path = ("spec", "volumeAttributesClassName")
    if get_in(old, path) is not None and get_in(new, path) is None:
        errors.forbidden(place("spec.volumeAttributesClassName"), "may not be removed once set")


_CHANGE: ChangeRule = changes(_same_source, fixed_as("spec.volumeMode", "volumeMode"), _affinity, _class_stays)


_MOST_PARAMETERS, _LARGEST_PARAMETERS = 512, 256 * 1024
_LONGEST_ID, _LONGEST_ERROR = 256, 1024 * 256
_LONGEST_TOKEN = 1 << 32


def _parameters(values: Any, at: FieldPath, errors: ErrorList) -> None:
    if len(values) > _MOST_PARAMETERS:
        errors.too_long(at, _MOST_PARAMETERS, "items")
    if "" in values:
        errors.invalid(at, "", "a name may not be empty")
    if sum(len(name) + len(value) for name, value in values.items()) > _LARGEST_PARAMETERS:
        errors.too_long(at, _LARGEST_PARAMETERS)


def _provisioner(name: str) -> str:
    return names.qualified(name.lower())


_TERM = record({"matchLabelExpressions": both(
    each(record({"key": QUALIFIED, "values": distinct()}, need("values"))), distinct_by("key"),
)})  # fmt: skip


def _topologies(terms: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the topology terms. None may be repeated."""
    seen: list[dict[str, set[str]]] = [{}]
    for index, term in enumerate(terms):
        _TERM(term, (at, index), errors)
        asked = {one.get("key", ""): set(one.get("values") or ()) for one in term.get("matchLabelExpressions") or ()}
        if asked in seen:
            errors.duplicate(((at, index), "matchLabelExpressions"), "")
        seen.append(asked)


_CLASS = record({
    "provisioner": if_any(form(_provisioner)), "parameters": _parameters, "allowedTopologies": _topologies,
    "reclaimPolicy": if_any(one_of("Delete", "Retain")),
    "volumeBindingMode": one_of("Immediate", "WaitForFirstConsumer"),
}, need("provisioner"))  # fmt: skip
_ATTRIBUTES = record(
    {"driverName": if_any(form(_provisioner)), "parameters": _parameters},
    need("driverName"),
    need("parameters", why="must contain at least one key/value pair"),
)


def _never_changed(*fields: str) -> ChangeRule:
    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        for name in fields:
            if new.get(name) != old.get(name):
                errors.forbidden((None, name), IMMUTABLE)

    return change


_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
_NOT_INLINE = "may not be specified for an inline volume"


def _inline(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check a volume that is described inline in its attachment."""
    never("claimRef", "capacity", "nodeAffinity", "storageClassName", why=_NOT_INLINE)(spec, at, errors)
    need("csi", "accessModes")(spec, at, errors)
    access_modes(spec.get("accessModes") or (), (at, "accessModes"), errors)
    for name, usual in (("persistentVolumeReclaimPolicy", "Retain"), ("volumeMode", "Filesystem")):
        if spec.get(name, usual) != usual:
            errors.forbidden((at, name), f"may only be {usual} for an inline volume")
    _SOURCE(spec, at, errors)


def _attached(source: Any, at: FieldPath, errors: ErrorList) -> None:
    given = [name for name in ("inlineVolumeSpec", "persistentVolumeName") if name in source]
    if not given:
        errors.required(at, _ONE_SOURCE)
    elif len(given) > 1:
        errors.forbidden(at, _ONE_SOURCE)
    elif given == ["inlineVolumeSpec"]:
        _inline(source["inlineVolumeSpec"], (at, "inlineVolumeSpec"), errors)
    elif not source["persistentVolumeName"]:
        errors.required((at, "persistentVolumeName"))
    if "persistentVolumeName" in source:
        SUBDOMAIN(source["persistentVolumeName"], (at, "persistentVolumeName"), errors)


def _attachment(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    _driver(spec.get("attacher"), (at, "attacher"), errors)
    _attached(spec.get("source") or {}, (at, "source"), errors)
    SUBDOMAIN(spec.get("nodeName", ""), (at, "nodeName"), errors)


def _attachment_status(new: Tree, _old: Tree, errors: ErrorList) -> None:
    for name in ("attachError", "detachError"):
        error = (new.get("status") or {}).get(name) or {}
        if len(error.get("message", "")) > _LONGEST_ERROR:
            errors.too_long(((place("status"), name), "message"), _LONGEST_ERROR)


_MODES = ("Ephemeral", "Persistent")
_TOKEN_LIFE = between(600, _LONGEST_TOKEN, "must be between 10 minutes and 2^32 seconds")


# An empty audience means the audience of the API server.
_TOKENS = both(each(record({"expirationSeconds": _TOKEN_LIFE})), distinct_by("audience", empties=True))


def _lifecycle_modes(modes: Any, at: FieldPath, errors: ErrorList) -> None:
    for mode in modes:
        if mode not in _MODES:
            errors.unsupported(at, mode, _MODES)


def _secret_tokens(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if "serviceAccountTokenInSecrets" in spec and not spec.get("tokenRequests"):
        here = (at, "serviceAccountTokenInSecrets")
        errors.invalid(here, spec["serviceAccountTokenInSecrets"], "is set, but no tokens are asked for")


_CSI_DRIVER = record({
    "tokenRequests": _TOKENS, "volumeLifecycleModes": _lifecycle_modes,
    "fsGroupPolicy": one_of("File", "None", "ReadWriteOnceWithFSType"),
    "nodeAllocatableUpdatePeriodSeconds": at_least(10),
}, _secret_tokens)  # fmt: skip


_ALLOCATABLE = record({"allocatable": record({"count": at_least(0)})})


def _node_driver(driver: Any, at: FieldPath, errors: ErrorList) -> None:
    node = driver.get("nodeID", "")
    _driver(driver.get("name"), (at, "name"), errors)
    if not node:
        errors.required((at, "nodeID"))
    if len(node) > _LONGEST_ID:
        errors.invalid((at, "nodeID"), node, f"must be {_LONGEST_ID} characters or less")
    _ALLOCATABLE(driver, at, errors)
    keys = driver.get("topologyKeys") or ()
    for _, topology in duplicates(keys):
        errors.duplicate(at, topology)
    for topology in keys:
        if not topology:
            errors.required(at, "a topology key may not be empty")
        QUALIFIED(topology, at, errors)


_NODE_DRIVERS = both(each(_node_driver), distinct_by("name", empties=True))


def _drivers_stay(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check that driver entries do not change, except for what can be allocated. They may be added and removed."""
    now, before = ([_lasting(one) for one in get_in(tree, ("spec", "drivers")) or ()] for tree in (new, old))
    for driver in now:
        if any(driver["name"] == known["name"] and driver != known for known in before):
            errors.invalid(place("spec.drivers"), driver, IMMUTABLE)


def _lasting(driver: Tree) -> Tree:
    return {"name": driver.get("name", ""), **{name: value for name, value in driver.items() if name != "allocatable"}}


def _storage_capacity(found: Any, at: FieldPath, errors: ErrorList) -> None:
    SUBDOMAIN(found.get("storageClassName", ""), (at, "storageClassName"), errors)


_CAPACITY = record({"nodeTopology": SELECTOR, "capacity": not_negative}, _storage_capacity)

RULES = {
    "v1/PersistentVolume": KindRules(change=_CHANGE, spec=_SPEC),
    "storage.k8s.io/v1/StorageClass": KindRules(
        _CLASS, fixed("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"), by_schema=False,
    ),
    "storage.k8s.io/v1/VolumeAttributesClass": KindRules(
        _ATTRIBUTES, _never_changed("driverName", "parameters"), by_schema=False,
    ),
    "storage.k8s.io/v1/VolumeAttachment": KindRules(
        change=fixed("spec"), subresources={"status": _attachment_status}, spec=_attachment, by_schema=False,
    ),
    "storage.k8s.io/v1/CSIDriver": KindRules(
        change=changes(fixed_as("spec.attachRequired", "spec.attachedRequired"), fixed("spec.volumeLifecycleModes")),
        spec=_CSI_DRIVER,
        by_schema=False,
    ),
    "storage.k8s.io/v1/CSINode": KindRules(within("spec.drivers", _NODE_DRIVERS), _drivers_stay, by_schema=False),
    "storage.k8s.io/v1/CSIStorageCapacity": KindRules(
        _CAPACITY, fixed("nodeTopology", "storageClassName"), by_schema=False,
    ),
}  # fmt: skip
