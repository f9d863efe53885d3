"""Discovery as trees: the plain documents of each path, and the aggregated list; pure."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from apiserver_stub.kinds.api_service import Priority, priority_of, version_rank
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from controller_manager.api.platform import GROUP_DOMAIN

GROUP = f"apidiscovery.{GROUP_DOMAIN}"

# The verbs of custom resources, in the order in which clients know them.
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_WHEN_TERMINATING = ("delete", "deletecollection", "get", "list", "watch")


class GroupVersion(NamedTuple):
    """A version of a group as discovery tells of it: the kinds of this server, or what another server says of it, which
    is an item of `versions` in the aggregated list. A version may have neither.
    """

    group: str
    version: str
    priority: Priority
    kinds: tuple[ResourceInfo, ...] = ()
    extension: Mapping[str, Any] | None = None


Groups = Mapping[str, tuple[GroupVersion, ...]]


def local_versions(kinds: Iterable[ResourceInfo]) -> list[GroupVersion]:
    """Return the versions of groups of some kinds, with the kinds in order of appearance."""
    found: dict[tuple[str, str], tuple[ResourceInfo, ...]] = {}
    for kind in kinds:
        found[kind.group, kind.version] = (*found.get((kind.group, kind.version), ()), kind)
    return [GroupVersion(*name, priority_of(*name), held) for name, held in found.items()]


def listed(versions: Iterable[GroupVersion]) -> Groups:
    """Return groups in the order of the list of all groups: by the highest priority, then by the name of its API
    service.
    """
    return _arranged(versions, lambda one: (-one.priority.group, f"{one.version}.{one.group}"))


def aggregated(versions: Iterable[GroupVersion]) -> Groups:
    """Return groups in the order of the aggregated list, which has none without resources: by the highest priority,
    then by name.
    """
    told = (one for one in versions if one.kinds or one.extension is not None)
    return _arranged(told, lambda one: (-one.priority.group, one.group))


def _arranged(versions: Iterable[GroupVersion], rank: Callable[[GroupVersion], tuple[int, str]]) -> Groups:
    found: dict[str, list[GroupVersion]] = {}
    for one in sorted(versions, key=rank):
        found.setdefault(one.group, []).append(one)
    return {
        group: tuple(sorted(held, key=lambda one: (-one.priority.version, version_rank(one.version))))
        for group, held in found.items()
    }


def plain_documents(groups: Groups, address: str = "") -> dict[str, dict[str, Any]]:
    """Return every document of the plain form by path; `address` is where clients reach the server, if known."""
    told = [_group(group, found) for group, found in groups.items() if group]
    core = [one.version for one in groups.get("", ())]
    reached = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}] if address else []
    documents: dict[str, dict[str, Any]] = {
        "/api": {"kind": "APIVersions", "versions": core, "serverAddressByClientCIDRs": reached},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": told},
    }
    documents.update({f"/apis/{group['name']}": {"kind": "APIGroup", "apiVersion": "v1", **group} for group in told})
    for group, found in groups.items():
        for one in found:
            if one.kinds:
                path = f"/apis/{group}/{one.version}" if group else f"/api/{one.version}"
                documents[path] = _resource_list(one.kinds)
    return documents


def aggregated_list(groups: Groups) -> dict[str, Any]:
    """Return an `APIGroupDiscoveryList` of the groups."""
    items = [
        {"metadata": {"name": group} if group else {}, "versions": [_version(one) for one in found]}
        for group, found in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"{GROUP}/v2", "metadata": {}, "items": items}


def _version(one: GroupVersion) -> Mapping[str, Any]:
    if one.extension is not None:
        return one.extension
    return {"version": one.version, "freshness": "Current", "resources": [_aggregated(kind) for kind in one.kinds]}


def _group(group: str, versions: Iterable[GroupVersion]) -> dict[str, Any]:
    served = [{"groupVersion": f"{group}/{one.version}", "version": one.version} for one in versions]
    return {"name": group, "versions": served, "preferredVersion": served[0]}


def _resource_list(kinds: tuple[ResourceInfo, ...]) -> dict[str, Any]:
    resources = [entry for kind in kinds for entry in _resources(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": resources,
    }


def _resources(kind: ResourceInfo) -> Iterable[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    hashed = {"storageVersionHash": _storage_hash(kind)} if kind.persisted else {}
    yield entry | _names(kind) | hashed
    for subresource in sorted(kind.subresources.values(), key=lambda one: one.name):
        found = {
            "name": f"{kind.plural}/{subresource.name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": subresource.kind,
            "verbs": sorted(subresource.verbs),
        }
        if (subresource.group, subresource.version) != (kind.group, kind.version):
            found |= {"group": subresource.group, "version": subresource.version}
        yield found


def _aggregated(kind: ResourceInfo) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    }
    subresources = sorted(kind.subresources.values(), key=lambda one: one.name)
    if subresources:
        entry["subresources"] = [_aggregated_subresource(subresource) for subresource in subresources]
    return entry | _names(kind)


def _verbs(kind: ResourceInfo) -> list[str]:
    """Return the verbs of a kind, in the order in which clients see them."""
    if kind.definition:
        return sorted(kind.verbs)
    return [verb for verb in (_WHEN_TERMINATING if kind.terminating else _CUSTOM_VERBS) if verb in kind.verbs]


def _aggregated_subresource(subresource: Subresource) -> dict[str, Any]:
    kind = {"group": subresource.group, "version": subresource.version, "kind": subresource.kind}
    return {"subresource": subresource.name, "responseKind": kind, "verbs": sorted(subresource.verbs)}


def _names(kind: ResourceInfo) -> dict[str, Any]:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: values for name, values in names.items() if values}


def _storage_hash(kind: ResourceInfo) -> str:
    """Return what tells clients the kind that objects are stored as: equal as long as it is."""
    return b64encode(hashlib.sha256("/".join(kind.storage_version).encode()).digest()[:8]).decode()
