"""The rules of containers of all sorts: their probes and hooks, what each has, what it shares with the pod around it,
and security contexts of both.
"""

import re
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    GREATEST,
    Rule,
    at_least,
    between,
    both,
    chosen,
    distinct,
    distinct_by,
    each,
    form,
    need,
    never,
    nothing,
    one_of,
    record,
)
from apiserver_stub.kinds.rules.env import bulk, variables
from apiserver_stub.kinds.rules.formats import LABEL, PORT, descending, header, no_backsteps, port_if_any, port_or_name
from apiserver_stub.kinds.rules.quantities import RESOURCES

_ID = between(0, GREATEST)
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(rf"({_SEGMENT}[./])*{_SEGMENT}", re.ASCII)
_SYSCTL_LIMIT = 253


def _profile(kind: str) -> Rule:
    def local(profile: Any, at: FieldPath, errors: ErrorList) -> None:
        path = profile.get("localhostProfile")
        if profile.get("type") == "Localhost":
            if not path:
                errors.required((at, "localhostProfile"), f"must be set when {kind} type is Localhost")
        elif path is not None:
            errors.invalid((at, "localhostProfile"), path, f"can only be set when {kind} type is Localhost")

    rows = {"type": one_of("Localhost", "RuntimeDefault", "Unconfined"), "localhostProfile": form(descending)}
    return record(rows, local, need("type"))


def _sysctl(name: str) -> str:
    if len(name) > _SYSCTL_LIMIT:
        return f"must be no more than {_SYSCTL_LIMIT} characters"
    return "" if _SYSCTL.fullmatch(name) else "must be names of lower case letters and digits joined by '.' or '/'"


def _privileges(context: Any, at: FieldPath, errors: ErrorList) -> None:
    if context.get("allowPrivilegeEscalation") is not False:
        return
    if context.get("privileged"):
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        errors.invalid(at, context, why)
    if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
        why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        errors.invalid(at, context, why)


_SHARED = {
    "runAsUser": _ID,
    "runAsGroup": _ID,
    "seccompProfile": _profile("seccomp"),
    "appArmorProfile": _profile("AppArmor"),
    "windowsOptions": record({"gmsaCredentialSpecName": form(names.subdomain)}),
}
CONTAINER_CONTEXT = record({**_SHARED, "procMount": one_of("Default", "Unmasked")}, _privileges)
POD_CONTEXT = record({
    **_SHARED,
    "fsGroup": _ID,
    "supplementalGroups": each(_ID),
    "fsGroupChangePolicy": one_of("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": one_of("Merge", "Strict"),
    "seLinuxChangePolicy": one_of("MountOption", "Recursive"),
    "sysctls": both(each(record({"name": form(_sysctl)})), distinct_by("name")),
})  # fmt: skip


_ONE = "must be 1"
_NONE_OF_READINESS = "must not be set for readinessProbes"


def _header_names(headers: Any, at: FieldPath, errors: ErrorList) -> None:
    for entry in headers:
        if why := header(entry.get("name", "")):
            errors.invalid(at, entry.get("name", ""), why)


_HANDLERS = {
    "exec": need("command"),
    "httpGet": record({"port": port_or_name, "httpHeaders": _header_names}),
    "tcpSocket": record({"port": port_or_name}),
    "grpc": record({"port": PORT}),
}


def _handlers(*sources: str) -> Rule:
    rows = {name: _HANDLERS.get(name, nothing) for name in sources}
    return chosen(rows, "must specify a handler type", "may not specify more than 1 handler type")


_PROBE = {
    "initialDelaySeconds": at_least(0),
    "timeoutSeconds": at_least(0),
    "periodSeconds": at_least(0),
    "failureThreshold": at_least(0),
    "terminationGracePeriodSeconds": at_least(1, "must be greater than 0"),
}
_HANDLER = _handlers(*_HANDLERS)
# A probe that may fail again after success is only that of readiness.
ONCE = record({**_PROBE, "successThreshold": between(1, 1, _ONE)}, _HANDLER)


def _unset(value: Any, at: FieldPath, errors: ErrorList) -> None:
    errors.invalid(at, value, _NONE_OF_READINESS)


READINESS = record({**_PROBE, "successThreshold": at_least(0), "terminationGracePeriodSeconds": _unset}, _HANDLER)
_HOOK = _handlers("exec", "httpGet", "tcpSocket", "sleep")
LIFECYCLE = record({"postStart": _HOOK, "preStop": _HOOK})


def sleeps(lifecycle: Any, at: FieldPath, errors: ErrorList, grace: Any) -> None:
    """The pauses of hooks fit into the time a Pod has to end."""
    for name in ("postStart", "preStop"):
        pause = (lifecycle.get(name) or {}).get("sleep")
        seconds = pause.get("seconds", 0) if pause is not None else 0
        if grace is not None and not 0 <= seconds <= max(grace, 0):
            why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            errors.invalid(((at, name), "sleep"), seconds, why)


_MOUNTING = {
    "mountPropagation": ("Bidirectional", "HostToContainer", "None"),
    "recursiveReadOnly": ("Disabled", "Enabled", "IfPossible"),
}
_HOOKS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def _container_port(value: Any, at: FieldPath, errors: ErrorList) -> None:
    if value == 0:
        errors.required(at)
    else:
        PORT(value, at, errors)


_PORTS = both(
    each(record({
        "containerPort": _container_port, "hostPort": port_if_any, "name": form(names.port_name),
    })),
    distinct_by("name"),
)  # fmt: skip


def _sub_paths(mount: Any, at: FieldPath, errors: ErrorList) -> None:
    if mount.get("subPath") and mount.get("subPathExpr"):
        why = "subPathExpr and subPath are mutually exclusive"
        errors.invalid((at, "subPathExpr"), mount["subPathExpr"], why)
    recursive = mount.get("recursiveReadOnly", "Disabled")
    if recursive not in _MOUNTING["recursiveReadOnly"]:
        return
    if recursive != "Disabled" and not mount.get("readOnly"):
        errors.forbidden((at, "recursiveReadOnly"), "may only be specified when readOnly is true")
    if recursive != "Disabled" and mount.get("mountPropagation", "None") != "None":
        why = "may only be specified when mountPropagation is None or not specified"
        errors.forbidden((at, "recursiveReadOnly"), why)


def _unique_mounts(mounts: Any, at: FieldPath, errors: ErrorList) -> None:
    seen: set[Any] = set()
    for index, mount in enumerate(mounts):
        path = mount.get("mountPath")
        if path and path in seen:
            errors.invalid(((at, index), "mountPath"), path, "must be unique")
        seen.add(path)


def _ways_of_mounting(mounts: Any, at: FieldPath, errors: ErrorList) -> None:
    for mount in mounts:
        for name, allowed in _MOUNTING.items():
            if name in mount and mount[name] not in allowed:
                errors.unsupported((at, name), mount[name], allowed)


_MOUNTS = both(each(record({
    "subPath": form(descending), "subPathExpr": form(descending),
}, _sub_paths)), _ways_of_mounting, _unique_mounts)  # fmt: skip
_DEVICES = both(each(record({"devicePath": form(no_backsteps)})), distinct_by("name"), distinct_by("devicePath"))
_RESIZED = ("cpu", "memory")
_RESIZES = ("NotRequired", "RestartContainer")


def _resizing(policies: Any, at: FieldPath, errors: ErrorList) -> None:
    for policy in policies:
        for name, allowed in (("resourceName", _RESIZED), ("restartPolicy", _RESIZES)):
            value = policy.get(name)
            if not value:
                errors.required(at)
            elif value not in allowed:
                errors.unsupported(at, value, allowed)
    distinct(lambda policy: policy.get("resourceName"))(policies, at, errors)


def _propagation(container: Any, at: FieldPath, errors: ErrorList) -> None:
    privileged = (container.get("securityContext") or {}).get("privileged")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("mountPropagation") == "Bidirectional" and not privileged:
            why = "may be Bidirectional in privileged containers only"
            errors.forbidden((((at, "volumeMounts"), index), "mountPropagation"), why)


_BARE_ROWS: dict[str, Rule] = {
    "name": LABEL, "ports": _PORTS, "env": variables, "envFrom": bulk, "volumeMounts": _MOUNTS,
    "volumeDevices": _DEVICES, "resources": RESOURCES, "resizePolicy": _resizing,
    "securityContext": CONTAINER_CONTEXT, "restartPolicy": one_of("Always", "Never", "OnFailure"),
}  # fmt: skip
_ROWS: dict[str, Rule] = {
    **_BARE_ROWS,
    "livenessProbe": ONCE,
    "readinessProbe": READINESS,
    "startupProbe": ONCE,
    "lifecycle": LIFECYCLE,
}
_COMMON = record(_BARE_ROWS, need("image"), _propagation)
CONTAINER = record(_ROWS, need("image"), _propagation)

_BARE = never(
    *_HOOKS, "ports", "resources", "resizePolicy", "restartPolicy", why="cannot be set for an Ephemeral Container"
)


def _init(container: Any, at: FieldPath, errors: ErrorList) -> None:
    if container.get("restartPolicy") == "Always":
        CONTAINER(container, at, errors)
        return
    _COMMON(container, at, errors)
    for name in _HOOKS:
        if name in container:
            errors.forbidden((at, name), "may not be set for init containers without restartPolicy=Always")


def _ephemeral(container: Any, at: FieldPath, errors: ErrorList) -> None:
    CONTAINER(container, at, errors)
    _BARE(container, at, errors)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here = ((at, "volumeMounts"), index)
        never("subPath", "subPathExpr", why="cannot be set for an Ephemeral Container")(mount, here, errors)


# Each list of containers of a Pod, with the rule of its items.
LISTS: tuple[tuple[str, Rule], ...] = (
    ("initContainers", _init), ("containers", CONTAINER), ("ephemeralContainers", _ephemeral),
)  # fmt: skip


def volumes_exist(container: Any, at: FieldPath, errors: ErrorList, volumes: Any) -> None:
    """Mounts and devices are of volumes the Pod has, and of no volume both."""
    mounted, paths = set(), set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        name = mount.get("name")
        mounted.add(name)
        paths.add(mount.get("mountPath"))
        if name and name not in volumes:
            errors.not_found((((at, "volumeMounts"), index), "name"), name)
    for index, device in enumerate(container.get("volumeDevices") or ()):
        here, name = ((at, "volumeDevices"), index), device.get("name")
        if name and name not in volumes:
            errors.not_found((here, "name"), name)
        elif name in mounted:
            errors.invalid((here, "name"), name, "must not already exist in volumeMounts")
        elif volumes.get(name) is not None and not volumes[name].keys() & {"persistentVolumeClaim", "ephemeral"}:
            why = "must be a volume that a claim is for"
            errors.invalid((here, "name"), name, why)
        if device.get("devicePath") in paths:
            why = "must not already exist as a path in volumeMounts"
            errors.invalid((here, "devicePath"), device.get("devicePath"), why)
