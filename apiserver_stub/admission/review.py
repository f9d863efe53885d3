"""Requests as webhooks and expressions see them: `AdmissionRequest`, and objects in the version that was matched."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from apiserver_stub.admission.chain import Attributes, Operation
from apiserver_stub.admission.matching import kind_of, namespace_of
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.values.trees import deep_copy
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving.authentication import User

_MOST_TYPES = 512  # cached types
_OPTIONS_VERSION = f"meta.{GROUP_DOMAIN}/v1"
_OPTIONS: Mapping[Operation, str] = MappingProxyType({"create": "CreateOptions", "update": "UpdateOptions"})


def admission_request(attributes: Attributes, info: ResourceInfo) -> Tree:
    """Return the `AdmissionRequest` without uid and objects; `info` is the resource in the matched version. Parts of it
    are shared: do not change them.
    """
    kind, resource = _type(info, attributes.subresource)
    asked_kind, asked_resource = _type(attributes.kind, attributes.subresource)
    request: Tree = {"kind": kind, "resource": resource}
    if attributes.subresource:
        request["subResource"] = attributes.subresource
    request["requestKind"] = asked_kind
    request["requestResource"] = asked_resource
    if attributes.subresource:
        request["requestSubResource"] = attributes.subresource
    if name := _name(attributes):
        request["name"] = name
    if namespace := namespace_of(attributes):
        request["namespace"] = namespace
    request["operation"] = attributes.operation.upper()
    request["userInfo"] = _user(attributes.user)
    request["dryRun"] = attributes.dry_run
    request["options"] = _options(attributes)
    return request


async def converted(tree: Tree, info: ResourceInfo, target: ResourceInfo, subresource: str) -> Tree:
    """Return an object of a resource or its subresource converted to `target`, another version or group of the same
    objects. An object of the right type is returned unchanged; others are new trees. Raises `ApiError`.
    """
    if kind_of(info, subresource) == kind_of(target, subresource):
        return tree
    if info.converter is not None:
        return (await info.converter((tree,), target.api_version))[0]
    stored = deep_copy(tree) if info.to_storage is None else info.to_storage(deep_copy(tree))
    found = stored if target.from_storage is None else target.from_storage(stored)
    return {**found, "apiVersion": target.api_version, "kind": target.kind}


def _name(attributes: Attributes) -> str:
    """Return the requested name, or that of a new object; empty for a collection."""
    return attributes.name if attributes.operation == "create" else attributes.requested_name


@lru_cache(_MOST_TYPES)
def _type(info: ResourceInfo, subresource: str) -> tuple[Tree, Tree]:
    """Return the type of the objects that are sent, and the resource that they are sent to."""
    resource = {"group": info.group, "version": info.version, "resource": info.plural}
    return kind_of(info, subresource)._asdict(), resource


def _user(user: User) -> Tree:
    info: Tree = {}
    if user.name:
        info["username"] = user.name
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


def _options(attributes: Attributes) -> Mapping[str, Any] | None:
    """Return the options of the operation; a connection has none."""
    options = attributes.options
    if attributes.operation == "delete":
        return {name: value for name, value in options.items() if value is not None}
    kind = _OPTIONS.get(attributes.operation)
    if kind is None:
        return None
    tree: Tree = {"kind": kind, "apiVersion": _OPTIONS_VERSION}
    if attributes.dry_run:
        tree["dryRun"] = ["All"]
    for name in ("fieldManager", "fieldValidation"):
        if value := options.get(name):
            tree[name] = value
    return tree
