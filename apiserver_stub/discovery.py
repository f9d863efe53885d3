"""What the server offers: `/api`, `/apis`, groups and versions, plain and aggregated; built once per set of kinds."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from apiserver_stub.encode.accept import preferred
from apiserver_stub.kinds.kind import Kind, Subresource
from apiserver_stub.kinds.registry import Kinds
from apiserver_stub.parse import unknown
from controller_manager.api.errors import NotAcceptable
from controller_manager.api.wire import Request, Response

PLAIN = "application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_ANY_JSON = frozenset({"application/json", "application/*", "*/*"})
_IS_AGGREGATED = frozenset({("g", "apidiscovery.k8s.io"), ("v", "v2"), ("as", "APIGroupDiscoveryList")})

Versions = Mapping[str, Mapping[str, tuple[Kind, ...]]]


@dataclass(frozen=True, slots=True)
class Page:
    """A document ready to send; `etag` is empty for the plain forms."""

    media_type: str
    body: bytes
    etag: str = ""


class Discovery:
    """Answers discovery paths; builds its documents again when the kinds have changed."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._shown: tuple[Kind, ...] = ()
        self._plain: dict[str, Page] = {}
        self._aggregated: dict[str, Page] = {}

    def answer(self, request: Request, path: str) -> Response:
        """The document at `path` (no trailing slash). Raises `NotFound` or `NotAcceptable`."""
        self._refresh()
        plain = self._plain.get(path)
        if plain is None:
            raise unknown()
        page = choose(request.headers.get("accept", ""), plain, self._aggregated.get(path))
        headers = {"content-type": page.media_type, "vary": "Accept"}
        if page.etag:
            headers["etag"] = page.etag
            if page.etag in request.headers.get("if-none-match", ""):
                return Response(304, headers)
        return Response(200, headers, page.body)

    def _refresh(self) -> None:
        kinds = tuple(self._kinds.all())
        if kinds == self._shown:
            return
        versions = by_version(kinds)
        self._plain = {path: Page(PLAIN, _encode(document)) for path, document in plain_documents(versions).items()}
        self._aggregated = {
            "/api": _with_etag(aggregated_list({group: found for group, found in versions.items() if not group})),
            "/apis": _with_etag(aggregated_list({group: found for group, found in versions.items() if group})),
        }
        self._shown = kinds


def choose(accept: str, plain: Page, aggregated: Page | None) -> Page:
    """The form the `Accept` header likes best of those offered. Raises `NotAcceptable` when it likes none."""
    if not accept.strip():
        return plain
    for media_type, parameters in preferred(accept):
        if media_type not in _ANY_JSON:
            continue
        if "as" not in parameters:
            return plain
        if aggregated is not None and parameters.items() >= _IS_AGGREGATED:
            return aggregated
    raise NotAcceptable(f"only the following media types are accepted: {PLAIN}, {AGGREGATED}")


def by_version(kinds: Iterable[Kind]) -> Versions:
    """The kinds by group and version, each in order of first appearance."""
    found: dict[str, dict[str, tuple[Kind, ...]]] = {}
    for kind in kinds:
        versions = found.setdefault(kind.group, {})
        versions[kind.version] = (*versions.get(kind.version, ()), kind)
    return found


def plain_documents(versions: Versions) -> dict[str, dict[str, Any]]:
    """Every document of the plain form, by path."""
    groups = [_group(group, found) for group, found in versions.items() if group]
    core = list(versions.get("", ()))
    documents: dict[str, dict[str, Any]] = {
        "/api": {"kind": "APIVersions", "versions": core, "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    documents.update({f"/apis/{group['name']}": {"kind": "APIGroup", "apiVersion": "v1", **group} for group in groups})
    for group, found in versions.items():
        for version, kinds in found.items():
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            documents[path] = _resource_list(kinds)
    return documents


def aggregated_list(versions: Versions) -> dict[str, Any]:
    """An `APIGroupDiscoveryList` of the groups."""
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
            "versions": [
                {"version": version, "freshness": "Current", "resources": [_aggregated(kind) for kind in kinds]}
                for version, kinds in found.items()
            ],
        }
        for group, found in versions.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _group(group: str, versions: Iterable[str]) -> dict[str, Any]:
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": served, "preferredVersion": served[0]}


def _resource_list(kinds: tuple[Kind, ...]) -> dict[str, Any]:
    resources = [entry for kind in kinds for entry in _resources(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": resources,
    }


def _resources(kind: Kind) -> Iterable[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": sorted(kind.verbs),
    }
    yield entry | _names(kind)
    for part in sorted(kind.subresources.values(), key=lambda one: one.name):
        found = {
            "name": f"{kind.plural}/{part.name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": part.kind,
            "verbs": sorted(part.verbs),
        }
        if (part.group, part.version) != (kind.group, kind.version):
            found |= {"group": part.group, "version": part.version}
        yield found


def _aggregated(kind: Kind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": sorted(kind.verbs),
    }
    parts = sorted(kind.subresources.values(), key=lambda one: one.name)
    if parts:
        entry["subresources"] = [_aggregated_part(part) for part in parts]
    return entry | _names(kind)


def _aggregated_part(part: Subresource) -> dict[str, Any]:
    kind = {"group": part.group, "version": part.version, "kind": part.kind}
    return {"subresource": part.name, "responseKind": kind, "verbs": sorted(part.verbs)}


def _names(kind: Kind) -> dict[str, Any]:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: values for name, values in names.items() if values}


def _with_etag(document: dict[str, Any]) -> Page:
    body = _encode(document)
    return Page(AGGREGATED, body, f'"{hashlib.sha256(body).hexdigest().upper()}"')


def _encode(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document)
