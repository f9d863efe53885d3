"""The rules of a Pod's volumes: names, exactly one source each, and what each source needs."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.problems import At, Problems
from apiserver_stub.kinds.rules.amounts import compares
from apiserver_stub.kinds.rules.claims import CLAIM_SPEC
from apiserver_stub.kinds.rules.combine import (
    Rule,
    between,
    both,
    distinct_by,
    each,
    form,
    if_any,
    need,
    nothing,
    one_of,
    one_source,
    record,
)
from apiserver_stub.kinds.rules.env import AMOUNT_REF, FILE_FIELD
from apiserver_stub.kinds.rules.formats import (
    LABEL,
    NOT_NEGATIVE,
    SUBDOMAIN,
    absolute,
    descending,
    lower_subdomain,
    no_backsteps,
)
from apiserver_stub.kinds.rules.metadata import TEMPLATE

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


def _size(value: Any, at: At, found: Problems) -> None:
    if not compares(value, "0", Decimal.__ge__):
        found.forbidden(at, NOT_NEGATIVE)


def _one_reference(item: Any, at: At, found: Problems) -> None:
    given = [name for name in ("fieldRef", "resourceFieldRef") if name in item]
    if len(given) > 1:
        found.invalid(at, "resource", "`fieldRef` and `resourceFieldRef` exclude each other")
    elif not given:
        found.required(at, "one of fieldRef and resourceFieldRef is required")


_DOWNWARD = each(
    record(
        {
            "path": form(_inner_path),
            "mode": _MODE,
            "fieldRef": FILE_FIELD,
            "resourceFieldRef": both(AMOUNT_REF, need("containerName")),
        },
        _one_reference,
    )
)
_PROJECTIONS = {
    "secret": record({"items": _ITEMS}, need("name")),
    "configMap": record({"items": _ITEMS}, need("name")),
    "downwardAPI": record({"items": _DOWNWARD}),
    "serviceAccountToken": record({"expirationSeconds": _TOKEN_LIFE, "path": form(_inner_path)}, need("path")),
    "clusterTrustBundle": record({"path": form(_inner_path)}),
    "podCertificate": nothing,
}


def _projected(source: Any) -> Iterator[str]:
    """The paths of the files that a source of a projected volume makes."""
    for name in ("secret", "configMap", "downwardAPI"):
        yield from (item.get("path", "") for item in (source.get(name) or {}).get("items") or ())
    for name in ("serviceAccountToken", "clusterTrustBundle"):
        if path := (source.get(name) or {}).get("path"):
            yield path


def _paths_differ(volume: Any, at: At, found: Problems) -> None:
    seen: set[str] = set()
    for source in volume.get("sources") or ():
        for path in _projected(source):
            if path and path in seen:
                found.invalid(at, path, "conflicting duplicate paths")
            seen.add(path)


_PROJECTION = record(
    _PROJECTIONS,
    one_source(_PROJECTIONS, "must specify a projected volume type", "may not specify more than 1 volume type"),
)
_FILES = {"items": _ITEMS, "defaultMode": _MODE}
_PARTITION = between(0, 255)
# What pods and persistent volumes share.
SHARED: Mapping[str, Rule] = MappingProxyType({
    **dict.fromkeys((
        "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker", "glusterfs", "iscsi",
        "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
    ), nothing),
    "hostPath": record({"path": form(no_backsteps), "type": if_any(one_of(*_PATH_TYPES))}),
    "nfs": record({"path": form(absolute)}),
    "awsElasticBlockStore": record({"partition": _PARTITION}),
    "gcePersistentDisk": record({"partition": _PARTITION}),
})  # fmt: skip
_SOURCES: dict[str, Rule] = {
    **SHARED,
    "emptyDir": record({"sizeLimit": _size}),
    "gitRepo": record({"directory": form(descending)}),
    "secret": record(_FILES, need("secretName")),
    "configMap": record(_FILES, need("name")),
    "downwardAPI": record({"items": _DOWNWARD, "defaultMode": _MODE}),
    "persistentVolumeClaim": need("claimName"),
    "projected": record({"sources": each(_PROJECTION), "defaultMode": _MODE}, _paths_differ),
    "csi": record({"driver": form(lower_subdomain), "nodePublishSecretRef": record({"name": SUBDOMAIN}, need("name"))}),
    "ephemeral": record({"volumeClaimTemplate": record({"metadata": TEMPLATE, "spec": CLAIM_SPEC})},
                        need("volumeClaimTemplate")),
    "image": record({"pullPolicy": one_of("Always", "IfNotPresent", "Never")}),
}  # fmt: skip

VOLUMES = both(
    each(
        record(
            {"name": LABEL, **_SOURCES},
            one_source(_SOURCES, "must specify a volume type", "may not specify more than 1 volume type"),
        )
    ),
    distinct_by("name"),
)
