"""Requests as webhooks and expressions see them: `AdmissionRequest`, and objects in the version that was matched."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.admission.chain import Attributes, Operation
from apiserver_stub.admission.matching import kind_of, namespace_of
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.trees import deep_copy
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.serving.authentication import User

_OPTIONS_VERSION = f"meta.{GROUP_DOMAIN}/v1"
_OPTIONS: Mapping[Operation, str] = MappingProxyType({"create": "CreateOptions", "update": "UpdateOptions"})


def admission_request(attributes: Attributes, info: ResourceInfo) -> Tree:
    """Return the `AdmissionRequest` without uid and objects; `info` is the resource in the version that was matched."""
    asked, subresource = attributes.kind, attributes.subresource
    part = {"subResource": subresource} if subresource else {}
    requested = {"requestSubResource": subresource} if subresource else {}
    named = {"name": _name(attributes), "namespace": namespace_of(attributes)}
    return {
        "kind": kind_of(info, subresource)._asdict(),
        "resource": _resource(info),
        **part,
        "requestKind": kind_of(asked, subresource)._asdict(),
        "requestResource": _resource(asked),
        **requested,
        **{name: value for name, value in named.items() if value},
        "operation": attributes.operation.upper(),
        "userInfo": _user(attributes.user),
        "dryRun": attributes.dry_run,
        "options": _options(attributes),
    }


async def converted(tree: Tree, info: ResourceInfo, target: ResourceInfo, subresource: str) -> Tree:
    """Return an object of a resource, or of its subresource, as `target` has it: another version or group of the same
    objects. One that is of the right type is returned itself, others are trees of their own. Raises `ApiError`.
    """
    if kind_of(info, subresource) == kind_of(target, subresource):
        return tree
    if info.converter is not None:
        return (await info.converter((tree,), target.api_version))[0]
    stored = deep_copy(tree) if info.to_storage is None else info.to_storage(deep_copy(tree))
    found = stored if target.from_storage is None else target.from_storage(stored)
    return {**found, "apiVersion": target.api_version, "kind": target.kind}


def _name(attributes: Attributes) -> str:
    """Return the name that was asked for, or that a new object has; objects of a collection are told without theirs."""
    return attributes.name if attributes.operation == "create" else attributes.requested_name


def _resource(info: ResourceInfo) -> Tree:
    return {"group": info.group, "version": info.version, "resource": info.plural}


def _user(user: User) -> Tree:
    told = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {name: value for name, value in told.items() if value}


def _options(attributes: Attributes) -> Mapping[str, Any] | None:
    """Return the options of the operation; a connection has none."""
    if attributes.operation == "delete":
        return {name: value for name, value in attributes.options.items() if value is not None}
    kind = _OPTIONS.get(attributes.operation)
    if kind is None:
        return None
    said = {name: attributes.options.get(name) for name in ("fieldManager", "fieldValidation")}
    dry_run = {"dryRun": ["All"]} if attributes.dry_run else {}
    told = {name: value for name, value in said.items() if value}
    return {"kind": kind, "apiVersion": _OPTIONS_VERSION, **dry_run, **told}
