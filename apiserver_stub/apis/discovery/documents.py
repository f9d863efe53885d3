"""Discovery documents as trees: the plain documents of each path, and the aggregated list. Pure."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from apiserver_stub.kinds.strategies.api_services import Priority, priority_of, version_rank
from controller_manager.common.api.platform import GROUP_DOMAIN

GROUP = f"apidiscovery.{GROUP_DOMAIN}"

# The verbs of custom resources in the order of kube-apiserver.
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
# Versions that kube-apiserver uses for the storage version hash, if they differ from the storage version.
_HASHED_VERSIONS = MappingProxyType(
    dict.fromkeys(("CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"), "v1beta1")
)
_WHEN_TERMINATING = ("delete", "deletecollection", "get", "list", "watch")


class GroupVersion(NamedTuple):
    """A group version in discovery: the kinds of this server, or the item in `versions` of another server's aggregated
    list. Both may be missing.
    """

    group: str
    version: str
    priority: Priority
    kinds: tuple[ResourceInfo, ...] = ()
    extension: Mapping[str, Any] | None = None


Groups = Mapping[str, tuple[GroupVersion, ...]]


def local_versions(kinds: Iterable[ResourceInfo]) -> list[GroupVersion]:
    """Return the group versions of kinds, with the kinds in order of appearance."""
    found: dict[tuple[str, str], tuple[ResourceInfo, ...]] = {}
    for kind in kinds:
        found[kind.group, kind.version] = (*found.get((kind.group, kind.version), ()), kind)
    return [GroupVersion(*name, priority_of(*name), held) for name, held in found.items()]


def listed(versions: Iterable[GroupVersion]) -> Groups:
    """Return the groups in the order of the group list: by highest priority, then by the name of the APIService."""
    return _arranged(versions, lambda one: (-one.priority.group, f"{one.version}.{one.group}"))


def aggregated(versions: Iterable[GroupVersion]) -> Groups:
    """Return the groups in the order of the aggregated list, without groups that have no resources: by highest
    priority, then by name.
    """
    populated = (one for one in versions if one.kinds or one.extension is not None)
    return _arranged(populated, lambda one: (-one.priority.group, one.group))


def _arranged(versions: Iterable[GroupVersion], rank: Callable[[GroupVersion], tuple[int, str]]) -> Groups:
    found: dict[str, list[GroupVersion]] = {}
    for one in sorted(versions, key=rank):
        found.setdefault(one.group, []).append(one)
    return {
        group: tuple(sorted(held, key=lambda one: (-one.priority.version, version_rank(one.version))))
        for group, held in found.items()
    }


def plain_documents(groups: Groups, address: str = "") -> dict[str, dict[str, Any]]:
    """Return all plain documents by path. `address` is the server address for clients, if known."""
    entries = [_group(group, found) for group, found in groups.items() if group]
    core = [one.version for one in groups.get("", ())]
    reached = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}] if address else []
    documents: dict[str, dict[str, Any]] = {
        "/api": {"kind": "APIVersions", "versions": core, "serverAddressByClientCIDRs": reached},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": entries},
    }
    documents.update({f"/apis/{group['name']}": {"kind": "APIGroup", "apiVersion": "v1", **group} for group in entries})
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
    found = {"kind": "APIResourceList", "groupVersion": kinds[0].api_version}
    if kinds[0].group:  # the core group uses an older form
        found["apiVersion"] = "v1"
    return {**found, "resources": [entry for kind in kinds for entry in _resources(kind)]}


def _resources(kind: ResourceInfo) -> Iterable[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    is_stored = kind.persisted and "watch" in kind.verbs  # component statuses are computed
    hashed = {"storageVersionHash": _storage_hash(kind)} if is_stored else {}
    yield entry | _names(kind) | hashed
    for subresource in _subresources(kind):
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
        "responseKind": _response_kind(kind, kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    }
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": subresource.name,
                "responseKind": _response_kind(kind, subresource),
                "verbs": sorted(subresource.verbs),
            }
            for subresource in _subresources(kind)
        ]
    return entry | _names(kind)


def _subresources(kind: ResourceInfo) -> list[Subresource]:
    """Return the subresources in the order of kube-apiserver."""
    found = list(kind.subresources.values())
    return sorted(found, key=lambda one: one.name) if kind.definition else found


def _response_kind(kind: ResourceInfo, body: ResourceInfo | Subresource) -> dict[str, str]:
    """Return the kind of a response. Built-in kinds omit the group and version if they equal those of the resource."""
    is_own = (body.group, body.version) == (kind.group, kind.version)
    if kind.definition and is_own:
        return {"group": "", "version": "", "kind": body.kind}
    return {"group": body.group, "version": body.version, "kind": body.kind}


def _verbs(kind: ResourceInfo) -> list[str]:
    """Return the verbs of a kind in the order of kube-apiserver."""
    if kind.definition:
        return sorted(kind.verbs)
    return [verb for verb in (_WHEN_TERMINATING if kind.terminating else _CUSTOM_VERBS) if verb in kind.verbs]


def _names(kind: ResourceInfo) -> dict[str, Any]:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: values for name, values in names.items() if values}


def _storage_hash(kind: ResourceInfo) -> str:
    """Return the hash of the stored kind and version; clients compare it."""
    group, version, name = kind.storage_version
    stored_kind = "/".join((group, _HASHED_VERSIONS.get(name, version) if kind.definition else version, name))
    return b64encode(hashlib.sha256(stored_kind.encode()).digest()[:8]).decode()
