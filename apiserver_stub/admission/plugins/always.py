"""Plugins that treat all users alike and have no configuration; all are off by default.

| plugin                 | request                                   | effect                                          |
|------------------------|-------------------------------------------|-------------------------------------------------|
| AlwaysAdmit            | any                                       | none                                            |
| AlwaysDeny             | any                                       | rejected                                        |
| AlwaysPullImages       | pod: create, update with an image that    | images of containers and volumes are pulled     |
|                        | none of its containers had                | each time, which checks the pull credentials    |
| DenyServiceExternalIPs | service: create, update                   | new external IPs are rejected                   |
"""

from typing import Any

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Operation, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.common.error_list import ErrorList, FieldPath
from controller_manager.common.api.errors import UnknownError
from controller_manager.common.api.tree import Tree

_ANY: tuple[Operation, ...] = ("create", "update", "delete", "connect")
_BOTH: tuple[Operation, ...] = ("create", "update")
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_ALWAYS = "Always"


async def admit(_attributes: Attributes) -> None:
    """Admit a request."""


async def deny(attributes: Attributes) -> None:
    """Raises `Forbidden`."""
    raise attributes.refused("this server denies all changes (AlwaysDeny)")


async def pull_always(attributes: Attributes) -> None:
    """Set the pull policy Always for all images of a pod."""
    pod = attributes.tree
    spec = pod.get("spec") or {}
    if not _brings_image(spec, attributes.old_object):
        return
    changed = {
        field: [{**one, "imagePullPolicy": _ALWAYS} for one in spec[field]] for field in _CONTAINERS if spec.get(field)
    }
    if spec.get("volumes"):
        changed["volumes"] = [_pulled(volume) for volume in spec["volumes"]]
    pod["spec"] = {**spec, **changed}


async def check_pulls(attributes: Attributes) -> None:
    """Raises `UnknownError` for a pod that was changed since, so that an image is not always pulled."""
    spec = attributes.tree.get("spec") or {}
    if not _brings_image(spec, attributes.old_object):
        return
    errors = ErrorList()
    at: FieldPath = (None, "spec")
    for field in _CONTAINERS:
        for index, container in enumerate(spec.get(field) or ()):
            _check_pull(container.get("imagePullPolicy"), ((((at, field), index)), "imagePullPolicy"), errors)
    for index, volume in enumerate(spec.get("volumes") or ()):
        if image := volume.get("image"):
            _check_pull(image.get("pullPolicy"), ((((at, "volumes"), index), "image"), "pullPolicy"), errors)
    if errors.causes:
        messages = [attributes.refused(f"{one.field}: {one.message}").message for one in errors.causes]
        raise UnknownError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")


def _check_pull(policy: Any, at: FieldPath, errors: ErrorList) -> None:
    if policy != _ALWAYS:
        errors.unsupported(at, policy or "", [_ALWAYS])


def _pulled(volume: Tree) -> Tree:
    return {**volume, "image": {**volume["image"], "pullPolicy": _ALWAYS}} if volume.get("image") else volume


def _brings_image(spec: Tree, old: Tree | None) -> bool:
    return old is None or not _images(spec) <= _images(old.get("spec") or {})


def _images(spec: Tree) -> set[str | None]:
    return {one.get("image") for field in _CONTAINERS for one in spec.get(field) or ()}


async def deny_external_ips(attributes: Attributes) -> None:
    """Raises `Forbidden` for a service with external IPs that it did not have."""
    wanted, had = (
        set(((tree or {}).get("spec") or {}).get("externalIPs") or ())
        for tree in (attributes.object, attributes.old_object)
    )
    if not wanted <= had:
        raise attributes.refused("services may not be given external IPs (DenyServiceExternalIPs)")


def always_admit(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin AlwaysAdmit."""
    return _deprecated(parts, "AlwaysAdmit", Rule(admit, _ANY, subresources=(ALL,)))


def always_deny(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin AlwaysDeny."""
    return _deprecated(parts, "AlwaysDeny", Rule(deny, _ANY, subresources=(ALL,)))


def always_pull_images(_parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin AlwaysPullImages."""
    pods = ("pods",)
    return AdmissionPlugin("AlwaysPullImages", (Rule(pull_always, _BOTH, pods),), (Rule(check_pulls, _BOTH, pods),))


def deny_service_external_ips(_parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin DenyServiceExternalIPs."""
    return AdmissionPlugin("DenyServiceExternalIPs", validating=(Rule(deny_external_ips, _BOTH, ("services",)),))


def _deprecated(parts: AdmissionParts, name: str, rule: Rule) -> AdmissionPlugin:
    parts.runtime.log("admission").warning("admission plugin is deprecated; remove it from the flags", plugin=name)
    return AdmissionPlugin(name, (rule,), (rule,))
