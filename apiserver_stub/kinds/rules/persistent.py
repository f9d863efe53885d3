"""The rules of persistent volumes."""

from typing import Any

from apiserver_stub.kinds.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.amounts import positive
from apiserver_stub.kinds.rules.claims import access_modes
from apiserver_stub.kinds.rules.combine import (
    Change,
    Rule,
    Rules,
    changes,
    chosen,
    fixed,
    form,
    need,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import LABEL, SUBDOMAIN, lower_subdomain, no_backsteps
from apiserver_stub.kinds.rules.selectors import NODE_SELECTOR
from apiserver_stub.kinds.rules.volumes import SHARED
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


def _capacity(spec: Any, at: FieldPath, found: ErrorList) -> None:
    capacity = spec.get("capacity") or {}
    here = (at, "capacity")
    if not capacity:
        found.required(here)
    elif capacity.keys() != {"storage"}:
        found.unsupported(here, capacity, ("storage",))
    for name, value in capacity.items():
        positive(value, (here, key(name)), found)


def _fits(spec: Any, at: FieldPath, found: ErrorList) -> None:
    if "local" in spec and not get_in(spec, ("nodeAffinity", "required")):
        found.required((at, "nodeAffinity"), "a local volume needs it")
    recycled = spec.get("persistentVolumeReclaimPolicy") == "Recycle"
    if recycled and (get_in(spec, ("hostPath", "path")) or "").rstrip("/") == "" and "hostPath" in spec:
        found.forbidden((at, "persistentVolumeReclaimPolicy"), "may not be 'Recycle' for all of a host's files")


_SPEC = record({
    "accessModes": access_modes, "storageClassName": SUBDOMAIN,
    "nodeAffinity": record({"required": NODE_SELECTOR}), "volumeAttributesClassName": SUBDOMAIN,
}, need("accessModes"), _capacity, _fits,
    chosen(_SOURCES, "must specify a volume type", "may not specify more than 1 volume type"))  # fmt: skip


def _same_source(new: Tree, old: Tree, found: ErrorList) -> None:
    sources = [_source(tree.get("spec") or {}) for tree in (new, old)]
    if sources[0] != sources[1]:
        found.forbidden(place("spec.persistentvolumesource"), IMMUTABLE)


def _source(spec: Tree) -> Tree:
    source = {name: value for name, value in spec.items() if name in _SOURCES}
    if "csi" in source:
        source["csi"] = {name: value for name, value in source["csi"].items() if name not in _LATER}
    return source


def _affinity(new: Tree, old: Tree, found: ErrorList) -> None:
    path = ("spec", "nodeAffinity")
    before, now = get_in(old, path), get_in(new, path)
    if before and now != before:
        found.invalid(place("spec.nodeAffinity"), now, IMMUTABLE)


_CHANGE: Change = changes(_same_source, _affinity, fixed("spec.volumeMode"))
RULES = {"v1/PersistentVolume": Rules(within("spec", _SPEC), _CHANGE)}
