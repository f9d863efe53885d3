"""What a Pod may not ask for on the operating system it says it is for."""

from collections.abc import Iterator
from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath

_NOT_ON_WINDOWS = "cannot be set for a windows pod"
_NOT_ON_LINUX = "windows options cannot be set for a linux pod"
_LISTS = ("initContainers", "containers", "ephemeralContainers")
_POD_FIELDS = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_POD_CONTEXT = (
    "appArmorProfile", "fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsUser", "seLinuxChangePolicy",
    "seLinuxOptions", "seccompProfile", "supplementalGroups", "supplementalGroupsPolicy", "sysctls",
)  # fmt: skip
_CONTAINER_CONTEXT = (
    "allowPrivilegeEscalation", "appArmorProfile", "capabilities", "privileged", "procMount",
    "readOnlyRootFilesystem", "runAsGroup", "runAsUser", "seLinuxOptions", "seccompProfile",
)  # fmt: skip


def fits_system(spec: Any, at: FieldPath, found: ErrorList) -> None:
    """A Pod for one operating system asks for nothing that only another has."""
    system = (spec.get("os") or {}).get("name")
    if system == "linux":
        for here, context in _contexts(spec, at):
            _without(context, ("windowsOptions",), here, found, _NOT_ON_LINUX)
    elif system == "windows":
        _without(spec, _POD_FIELDS, at, found, _NOT_ON_WINDOWS)
        for index, (here, context) in enumerate(_contexts(spec, at)):
            _without(context, _CONTAINER_CONTEXT if index else _POD_CONTEXT, here, found, _NOT_ON_WINDOWS)


def _without(tree: Any, names: tuple[str, ...], at: FieldPath, found: ErrorList, why: str) -> None:
    for name in names:
        if tree.get(name) is not None:
            found.forbidden((at, name), why)


def _contexts(spec: Any, at: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    """The security context of the Pod, and those of its containers."""
    yield (at, "securityContext"), spec.get("securityContext") or {}
    for name in _LISTS:
        for index, container in enumerate(spec.get(name) or ()):
            yield (((at, name), index), "securityContext"), container.get("securityContext") or {}
