"""One operation of an OpenAPI document, its name, and the operations of pages."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from apiserver_stub.apis.openapi.definitions import META, PATCH
from apiserver_stub.encode import serializers as written
from apiserver_stub.encode.body import (
    APPLY_CBOR,
    APPLY_YAML,
    CBOR,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    YAML,
)
from apiserver_stub.encode.protobuf import MEDIA_TYPE as PROTOBUF
from controller_manager.common.api.platform import GROUP_DOMAIN

# Query parameters in OpenAPI documents (API concepts, Query parameters): types, descriptions, and the actions that use
# them.


class Parameter(NamedTuple):
    """The type and the description of a parameter."""

    type: str
    about: str


PARAMETERS: Mapping[str, Parameter] = MappingProxyType({
    "allowWatchBookmarks": Parameter("boolean", "Whether a watch may send events of type BOOKMARK."),
    "command": Parameter("string", "The command to run, one parameter for each argument; no shell is involved."),
    "container": Parameter("string", "The name of the container; a pod with one container needs none."),
    "continue": Parameter("string", "The token of the previous page of a list; the other parameters must be the same."),
    "dryRun": Parameter("string", "With the value All, the request is processed but nothing is stored."),
    "fieldManager": Parameter("string", "The name of the field manager, at most 128 printable characters."),
    "fieldSelector": Parameter("string", "Only objects with these values in selectable fields."),
    "fieldValidation": Parameter(
        "string", "How unknown and duplicate fields are handled: Ignore, Warn (the default) or Strict."
    ),
    "follow": Parameter("boolean", "Whether to follow the log and stream new lines."),
    "force": Parameter("boolean", "Whether server-side apply takes over fields that others own."),
    "gracePeriodSeconds": Parameter("integer", "The grace period in seconds; 0 deletes the object at once."),
    "ignoreStoreReadErrorWithClusterBreakingPotential": Parameter(
        "boolean", "Whether to delete an unreadable object, ignoring its finalizers."
    ),
    "insecureSkipTLSVerifyBackend": Parameter(
        "boolean", "Whether to read the log of a kubelet whose certificate is not verified."
    ),
    "labelSelector": Parameter("string", "Only objects with matching labels."),
    "limit": Parameter("integer", "The maximum number of objects in one response; a token continues the list."),
    "limitBytes": Parameter("integer", "The maximum number of bytes of the log."),
    "orphanDependents": Parameter("boolean", "Deprecated form of propagationPolicy: whether dependents are orphaned."),
    "path": Parameter("string", "The path that is asked for there, with its query."),
    "ports": Parameter("integer", "The ports to forward, separated by commas; needed for WebSocket connections."),
    "pretty": Parameter("string", "With the value true, the answer is indented."),
    "previous": Parameter("boolean", "Whether to read the log of the previous instance of the container."),
    "propagationPolicy": Parameter("string", "How dependents are handled: Orphan, Background or Foreground."),
    "resourceVersion": Parameter("string", "The resource version to read from."),
    "resourceVersionMatch": Parameter("string", "How resourceVersion is meant: Exact or NotOlderThan."),
    "sendInitialEvents": Parameter("boolean", "Whether a watch starts with the existing objects and a bookmark."),
    "shardSelector": Parameter(
        "string", "Only objects whose uid or namespace has a hash in ranges that calls of shardRange() name."
    ),
    "sinceSeconds": Parameter("integer", "Only lines of the log of the last given seconds."),
    "stderr": Parameter("boolean", "Whether to receive the standard error stream."),
    "stdin": Parameter("boolean", "Whether to send the standard input stream."),
    "stdout": Parameter("boolean", "Whether to receive the standard output stream."),
    "stream": Parameter("string", "The streams of the log: All, Stdout or Stderr."),
    "tailLines": Parameter("integer", "Only the last given number of lines of the log."),
    "timeoutSeconds": Parameter("integer", "The timeout of the request in seconds."),
    "timestamps": Parameter("boolean", "Whether each line of the log begins with its time."),
    "tty": Parameter("boolean", "Whether the streams are those of a terminal."),
    "watch": Parameter("boolean", "Whether to watch for changes instead of listing the objects."),
})  # fmt: skip

PATH_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {"name": "The name of the object.", "namespace": "The namespace the object is in.", "path": "The path there."}
)
# The parameters of each action; every action on objects also has `pretty`.
WRITING = ("dryRun", "fieldManager", "fieldValidation")
PATCHING = ("dryRun", "fieldManager", "fieldValidation", "force")
DELETING = (
    "dryRun", "gracePeriodSeconds", "ignoreStoreReadErrorWithClusterBreakingPotential", "orphanDependents",
    "propagationPolicy",
)  # fmt: skip
LISTING = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "shardSelector", "timeoutSeconds", "watch",
)  # fmt: skip
_OF_A_WATCH = frozenset({"allowWatchBookmarks", "watch"})
COLLECTING = tuple(sorted({*DELETING, *LISTING} - _OF_A_WATCH))
_STREAMS = ("container", "stderr", "stdin", "stdout", "tty")
_PROXY = ("path",)
CONNECTING: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "PodAttachOptions": _STREAMS, "PodExecOptions": ("command", *_STREAMS), "PodPortForwardOptions": ("ports",),
    "NodeProxyOptions": _PROXY, "PodProxyOptions": _PROXY, "ServiceProxyOptions": _PROXY,
})  # fmt: skip
"""The parameters of connections by the kind of their options."""
LOGGING = (
    "container", "follow", "insecureSkipTLSVerifyBackend", "limitBytes", "previous", "sinceSeconds", "stream",
    "tailLines", "timestamps",
)  # fmt: skip


TEXT = "text"  # stands for a plain text response
PHRASES: Mapping[str, str] = MappingProxyType({"200": "OK", "201": "Created", "202": "Accepted"})

_PARTS = re.compile("[.-]")
_VERSION = "io.k8s.apimachinery.pkg.version.Info"


class OpenAPIOperation(msgspec.Struct, frozen=True):
    """One method of one path. `name` is unique; clients derive function names from it. `about` is the group, version
    and kind, None for a page. `body` and `answer` are names of definitions, `body` may be empty. `custom` kinds are not
    part of the built-in API. `media` is the media type of a page with only one.
    """

    path: str
    method: str
    name: str
    sentence: str
    tag: str
    answer: str
    action: str = ""
    about: tuple[str, str, str] | None = None
    query: tuple[str, ...] = ()
    body: str = ""
    codes: tuple[str, ...] = ("200",)
    custom: bool = False
    media: str = ""

    @property
    def refs(self) -> Iterator[str]:
        """The definitions that the operation refers to."""
        return (name for name in (self.body, self.answer) if name not in ("", TEXT))

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The names of the parameters and their location: `path` or `query`."""
        held = [(name, "path") for name in PATH_PARAMETERS if f"{{{name}}}" in self.path]
        pretty = [] if self.about is None or self.action == "connect" else ["pretty"]
        return [*held, *((name, "query") for name in (*self.query, *pretty))]

    @property
    def extensions(self) -> dict[str, Any]:
        """Return the `x-kubernetes` extensions; empty for a page."""
        if self.about is None:
            return {}
        about = dict(zip(("group", "version", "kind"), self.about, strict=True))
        return {"x-kubernetes-action": self.action, "x-kubernetes-group-version-kind": about}


def by_path(
    operations: Iterable[OpenAPIOperation],
    described: Callable[[OpenAPIOperation], dict[str, Any]],
    parameter: Callable[[str, str], dict[str, Any]],
) -> tuple[dict[str, Any], set[str]]:
    """Return the operations as `described`, by path and method, and the names of their definitions. Each operation has
    its parameters in `parameters`; parameters common to all operations of a path are written once at the path.
    """
    found: dict[str, list[OpenAPIOperation]] = {}
    for operation in operations:
        found.setdefault(operation.path, []).append(operation)
    paths: dict[str, Any] = {}
    for path, beside in found.items():
        common = set.intersection(*(set(operation.parameters) for operation in beside))
        item = paths[path] = {"parameters": [parameter(*name) for name in sorted(common)]} if common else {}
        for operation in beside:
            own = [parameter(*name) for name in operation.parameters if name not in common]
            rest = described(operation)
            own += rest.pop("parameters", ())
            item[operation.method] = {**({"parameters": own} if own else {}), **rest}
    return paths, {name for beside in found.values() for operation in beside for name in operation.refs}


def describe(name: str, place: str) -> tuple[str, str]:
    """Return the type and the description of a parameter."""
    return ("string", PATH_PARAMETERS[name]) if place == "path" else PARAMETERS[name]


def root_of(group: str, version: str) -> str:
    """Return the path of a group version without leading and trailing slashes."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def page(path: str) -> OpenAPIOperation:
    """Return the operation that reads a page (path without leading and trailing slashes): a version, a group, the group
    list, `version` itself, or the keys for verifying service account tokens.
    """
    match path.split("/"):
        case ["version"]:
            return _page(path, "getCodeVersion", "version", _VERSION, JSON)
        case ["apis"]:
            return _page(path, "getAPIVersions", "apis", f"{META}APIGroupList")
        case [".well-known", "openid-configuration"]:
            return _page(path, "getServiceAccountIssuerOpenIDConfiguration", "WellKnown", TEXT, JSON)
        case ["openid", "v1", "jwks"]:
            return _page(path, "getServiceAccountIssuerOpenIDKeyset", "openid", TEXT, "application/jwk-set+json")
        case ["api"]:
            return _page(path, "getCoreAPIVersions", "core", f"{META}APIVersions")
        case ["apis", group]:
            return _page(path, f"get{words(group)}APIGroup", tag_of(group), f"{META}APIGroup")
        case [_, *groups, version]:
            group = "".join(groups)
            name = f"get{words(group)}{version.capitalize()}APIResources"
            return _page(path, name, f"{tag_of(group)}_{version}", f"{META}APIResourceList")
    raise AssertionError(path)


def _page(path: str, name: str, tag: str, answer: str, media: str = "") -> OpenAPIOperation:
    return OpenAPIOperation(f"/{path}/", "get", name, "read what is served here", tag, answer, media=media)


def words(group: str) -> str:
    """Return a group as part of an operation's name: `rbac.authorization.k8s.io` is `RbacAuthorization`."""
    return "".join(part.capitalize() for part in _PARTS.split(_bare(group)))


def tag_of(group: str) -> str:
    """Return the tag of a group's operations: `rbac.authorization.k8s.io` has `rbacAuthorization`."""
    found = words(group)
    return found[:1].lower() + found[1:]


def _bare(group: str) -> str:
    return group.removesuffix(f".{GROUP_DOMAIN}") if group else "core"


# The media types of requests and responses of an operation (API concepts, Media types).

_WHOLE = (JSON, YAML, PROTOBUF)
_STREAMED = frozenset({"list", "watch", "watchlist"})


class Media(msgspec.Struct, frozen=True):
    """The media types of this server; CBOR only if it is enabled."""

    cbor: bool = False

    def consumed(self, operation: OpenAPIOperation) -> list[str]:
        """Return the media types of a request body."""
        if operation.body == PATCH:
            strategic = _if(not operation.custom, STRATEGIC_MERGE_PATCH)
            apply = (APPLY_YAML, *_if(self.cbor and not operation.custom, APPLY_CBOR))
            return [JSON_PATCH, MERGE_PATCH, *strategic, *apply]
        if operation.custom:
            return [JSON, YAML]
        if operation.about is not None:
            return ["*/*"]
        return [] if operation.answer == TEXT else self._of_page(operation)

    def produced(self, operation: OpenAPIOperation) -> list[str]:
        """Return the media types of a response."""
        if operation.action == "connect":
            return ["*/*"]
        if operation.about is None:
            return self._of_page(operation)
        if operation.answer == TEXT:
            return ["text/plain", *self._whole(operation)]
        whole = self._whole(operation)
        if operation.custom or operation.action not in _STREAMED:
            return whole
        streams = (f"{media};stream=watch" for media in whole if media in (JSON, PROTOBUF))
        return [*whole, *streams, *_if(self.cbor, written.CBOR.watch_type)]

    def _whole(self, operation: OpenAPIOperation) -> list[str]:
        return [JSON, YAML] if operation.custom else [*_WHOLE, *_if(self.cbor, CBOR)]

    def _of_page(self, operation: OpenAPIOperation) -> list[str]:
        if operation.media:
            return [operation.media]
        return [*_WHOLE, *_if(self.cbor, CBOR)]


def _if(condition: bool, media: str) -> tuple[str, ...]:
    return (media,) if condition else ()
