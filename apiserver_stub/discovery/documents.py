"""Discovery as trees: the plain documents of each path, and the aggregated list; pure."""

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from controller_manager.api.platform import GROUP_DOMAIN

GROUP = f"apidiscovery.{GROUP_DOMAIN}"

Versions = Mapping[str, Mapping[str, tuple[ResourceInfo, ...]]]


def by_version(kinds: Iterable[ResourceInfo]) -> Versions:
    """Return the kinds by group and version, each in order of first appearance."""
    found: dict[str, dict[str, tuple[ResourceInfo, ...]]] = {}
    for kind in kinds:
        versions = found.setdefault(kind.group, {})
        versions[kind.version] = (*versions.get(kind.version, ()), kind)
    return found


def plain_documents(versions: Versions, address: str = "") -> dict[str, dict[str, Any]]:
    """Return every document of the plain form by path; `address` is where clients reach the server, if known."""
    groups = [_group(group, found) for group, found in versions.items() if group]
    core = list(versions.get("", ()))
    reached = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}] if address else []
    documents: dict[str, dict[str, Any]] = {
        "/api": {"kind": "APIVersions", "versions": core, "serverAddressByClientCIDRs": reached},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    documents.update({f"/apis/{group['name']}": {"kind": "APIGroup", "apiVersion": "v1", **group} for group in groups})
    for group, found in versions.items():
        for version, kinds in found.items():
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            documents[path] = _resource_list(kinds)
    return documents


def aggregated_list(versions: Versions) -> dict[str, Any]:
    """Return an `APIGroupDiscoveryList` of the groups."""
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {"version": version, "freshness": "Current", "resources": [_aggregated(kind) for kind in kinds]}
                for version, kinds in found.items()
            ],
        }
        for group, found in versions.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"{GROUP}/v2", "metadata": {}, "items": items}


def _group(group: str, versions: Iterable[str]) -> dict[str, Any]:
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
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
        "verbs": sorted(kind.verbs),
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
        "verbs": sorted(kind.verbs),
    }
    subresources = sorted(kind.subresources.values(), key=lambda one: one.name)
    if subresources:
        entry["subresources"] = [_aggregated_subresource(subresource) for subresource in subresources]
    return entry | _names(kind)


def _aggregated_subresource(subresource: Subresource) -> dict[str, Any]:
    kind = {"group": subresource.group, "version": subresource.version, "kind": subresource.kind}
    return {"subresource": subresource.name, "responseKind": kind, "verbs": sorted(subresource.verbs)}


def _names(kind: ResourceInfo) -> dict[str, Any]:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: values for name, values in names.items() if values}


def _storage_hash(kind: ResourceInfo) -> str:
    """Return what tells clients the kind that objects are stored as: equal as long as it is."""
    return b64encode(hashlib.sha256("/".join(kind.storage_version).encode()).digest()[:8]).decode()
