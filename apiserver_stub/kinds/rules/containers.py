"""Validation of containers: probes and hooks, fields of each container, fields that depend on the pod, and the security
contexts of both.
"""

import re
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    GREATEST,
    ValueRule,
    at_least,
    at_most,
    between,
    both,
    chosen,
    distinct,
    distinct_by,
    duplicates,
    each,
    form,
    need,
    never,
    nothing,
    one_of,
    record,
    shorter,
)
from apiserver_stub.kinds.rules.env import bulk, variables
from apiserver_stub.kinds.rules.formats import LABEL, PORT, descending, header, no_backsteps, port_if_any, port_or_name
from apiserver_stub.kinds.rules.quantities import RESOURCES
from apiserver_stub.kinds.rules.windows import WINDOWS_OPTIONS
from apiserver_stub.kinds.values import names

_ID = between(0, GREATEST)
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(rf"({_SEGMENT}[./])*{_SEGMENT}", re.ASCII)
_SYSCTL_LIMIT = 253


_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_ONLY_LOCALHOST = "may be set for the type Localhost only"
_LONGEST_PROFILE = 4095


def _seccomp(profile: Any, at: FieldPath, errors: ErrorList) -> None:
    path, here = profile.get("localhostProfile"), (at, "localhostProfile")
    if profile.get("type") != "Localhost":
        if path is not None:
            errors.invalid(here, path, _ONLY_LOCALHOST)
    elif path:
        form(descending)(path, here, errors)
    else:
        errors.required(here, "must be set for the type Localhost")


def _app_armor(profile: Any, at: FieldPath, errors: ErrorList) -> None:
    kind, name, here = profile.get("type"), profile.get("localhostProfile"), (at, "localhostProfile")
    if kind != "Localhost":
        if kind in _PROFILES and name is not None:
            errors.invalid(here, name, _ONLY_LOCALHOST)
    elif not name:
        errors.required(here, "must be set for the type Localhost")
    else:
        if name != name.strip():
            errors.invalid(here, name, "must not have spaces around it")
        shorter(_LONGEST_PROFILE)(name, here, errors)


def _profile(local: ValueRule) -> ValueRule:
    return record({"type": one_of(*_PROFILES)}, local, need("type"))


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
    "seccompProfile": _profile(_seccomp),
    "appArmorProfile": _profile(_app_armor),
    "windowsOptions": WINDOWS_OPTIONS,
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
    "httpGet": record({"port": port_or_name, "scheme": one_of("HTTP", "HTTPS"), "httpHeaders": _header_names}),
    "tcpSocket": record({"port": port_or_name}),
    "grpc": record({"port": PORT}),
}


def _handlers(*sources: str) -> ValueRule:
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
# Only a readiness probe may require several successes.
ONCE = record({**_PROBE, "successThreshold": both(at_least(0), between(1, 1, _ONE))}, _HANDLER)


def _unset(value: Any, at: FieldPath, errors: ErrorList) -> None:
    errors.invalid(at, value, _NONE_OF_READINESS)


READINESS = record({
    **_PROBE, "successThreshold": at_least(0),
    "terminationGracePeriodSeconds": both(_PROBE["terminationGracePeriodSeconds"], _unset),
}, _HANDLER)  # fmt: skip
_HOOK = _handlers("exec", "httpGet", "tcpSocket", "sleep")
LIFECYCLE = record({"postStart": _HOOK, "preStop": _HOOK})


def sleeps(lifecycle: Any, at: FieldPath, errors: ErrorList, grace: Any) -> None:
    """Check that sleep hooks fit into the termination grace period."""
    for name in ("postStart", "preStop"):
        hook = lifecycle.get(name) or {}
        seconds = hook["sleep"].get("seconds", 0) if hook.keys() == {"sleep"} else 0
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


def _mounts(mounts: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that mount paths are unique. Other errors of a mount are reported at the list."""
    for index, path in duplicates(mount.get("mountPath", "") for mount in mounts):
        errors.invalid(((at, index), "mountPath"), path, "must be unique")
    for index, mount in enumerate(mounts):
        if not mount.get("mountPath"):
            errors.required(((at, index), "mountPath"), "volumes are mounted somewhere")
        if not mount.get("name"):
            errors.required(((at, index), "name"), "volumes have names")
        _MOUNT(mount, at, errors)
        if mount.get("subPath") and mount.get("subPathExpr"):
            errors.invalid(((at, index), "subPathExpr"), mount["subPathExpr"], "may not be set beside subPath")


def _read_only(mount: Any, at: FieldPath, errors: ErrorList) -> None:
    if mount.get("recursiveReadOnly") not in ("Enabled", "IfPossible"):
        return
    if not mount.get("readOnly"):
        errors.forbidden((at, "recursiveReadOnly"), "may only be specified when readOnly is true")
    if mount.get("mountPropagation", "None") != "None":
        why = "may only be specified when mountPropagation is None or not specified"
        errors.forbidden((at, "recursiveReadOnly"), why)


_MOUNT = record({
    "subPath": form(descending), "subPathExpr": form(descending),
    **{name: one_of(*allowed) for name, allowed in _MOUNTING.items()},
}, _read_only)  # fmt: skip


def _devices(devices: Any, at: FieldPath, errors: ErrorList) -> None:
    for field in ("name", "devicePath"):
        for index, device_path in duplicates(device.get(field, "") for device in devices):
            if device_path or field == "devicePath":
                errors.invalid(((at, index), field), device_path, "must be unique")
    for index, device in enumerate(devices):
        here, path = (at, index), device.get("devicePath", "")
        if not device.get("name"):
            errors.required((here, "name"), "volumes have names")
        if not path:
            errors.required((here, "devicePath"), "devices have a path in the container")
        elif why := no_backsteps(path):
            errors.invalid((here, "devicePath"), path, why)


_RESIZED = ("cpu", "memory")
_STAYS, _RESTARTS = "NotRequired", "RestartContainer"


def _resizing(policies: Any, at: FieldPath, errors: ErrorList) -> None:
    for index, policy in enumerate(policies):
        for name, allowed in (("resourceName", _RESIZED), ("restartPolicy", (_STAYS, _RESTARTS))):
            value = policy.get(name)
            if not value:
                errors.required(at, f"policy {index} needs {name}")
            elif value not in allowed:
                errors.unsupported(at, value, (*allowed, f"(policy {index})"))
    distinct(lambda policy: policy.get("resourceName"), empties=True)(policies, at, errors)


def resizes(container: Any, at: FieldPath, errors: ErrorList) -> None:
    """Reject a restart on resize for containers of a Pod that never restarts them."""
    for index, policy in enumerate(container.get("resizePolicy") or ()):
        if policy.get("restartPolicy") != _STAYS:
            why = f"policy {index} must be {_STAYS} where the pod has restartPolicy Never"
            errors.invalid((at, "resizePolicy"), policy.get("restartPolicy"), why)


def _propagation(container: Any, at: FieldPath, errors: ErrorList) -> None:
    privileged = (container.get("securityContext") or {}).get("privileged")
    ways = [mount.get("mountPropagation") for mount in container.get("volumeMounts") or ()]
    if "Bidirectional" in ways and not privileged:
        why = "may be Bidirectional in privileged containers only"
        errors.forbidden(((at, "volumeMounts"), "mountPropagation"), why)


_MOST_RULES, _MOST_CODES = 20, 255
_RESTART_RULE = record({
    "action": one_of("Restart", "RestartAllContainers"),
    "exitCodes": record({"operator": one_of("In", "NotIn"), "values": at_most(_MOST_CODES)}),
}, need("exitCodes", why="says after which exits"))  # fmt: skip


def _restarts(container: Any, at: FieldPath, errors: ErrorList, *, is_init: bool = False) -> None:
    rules = container.get("restartPolicyRules") or ()
    if "restartPolicy" in container:
        one_of("Always", "Never", "OnFailure")(container["restartPolicy"], (at, "restartPolicy"), errors)
    elif rules:
        errors.required((at, "restartPolicy"), "holds where no rule does")
    if "restartPolicy" in container or not is_init:
        both(at_most(_MOST_RULES), each(_RESTART_RULE))(rules, (at, "restartPolicyRules"), errors)


_BARE_ROWS: dict[str, ValueRule] = {
    "name": LABEL, "ports": _PORTS, "env": variables, "envFrom": bulk, "volumeMounts": _mounts,
    "volumeDevices": _devices, "resources": RESOURCES, "resizePolicy": _resizing,
    "securityContext": CONTAINER_CONTEXT,
}  # fmt: skip
_ROWS: dict[str, ValueRule] = {
    **_BARE_ROWS,
    "livenessProbe": ONCE,
    "readinessProbe": READINESS,
    "startupProbe": ONCE,
    "lifecycle": LIFECYCLE,
}
_COMMON = record(_BARE_ROWS, need("name", "image"), _propagation)
CONTAINER = record(_ROWS, need("name", "image"), _propagation, _restarts)

_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
_BARE = never("ports", "resources", "resizePolicy", "restartPolicyRules", why=_NOT_EPHEMERAL)


def _init(container: Any, at: FieldPath, errors: ErrorList) -> None:
    if container.get("restartPolicy") == "Always":
        CONTAINER(container, at, errors)
        return
    _COMMON(container, at, errors)
    _restarts(container, at, errors, is_init=True)
    for name in _HOOKS:
        if name in container:
            errors.forbidden((at, name), "may not be set for init containers without restartPolicy=Always")
    for index, policy in enumerate(container.get("resizePolicy") or ()):
        if policy.get("restartPolicy") == _RESTARTS:
            here = (((at, "resizePolicy"), index), "restartPolicy")
            errors.invalid(here, _RESTARTS, "may not be set for init containers without restartPolicy=Always")


def _ephemeral(container: Any, at: FieldPath, errors: ErrorList) -> None:
    _COMMON(container, at, errors)
    _BARE(container, at, errors)
    for name in (*_HOOKS, "restartPolicy"):
        if name in container:
            errors.forbidden((at, name), _NOT_EPHEMERAL)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        never("subPath", "subPathExpr", why=_NOT_EPHEMERAL)(mount, ((at, "volumeMounts"), index), errors)


# The lists of containers of a Pod, with the rule of their items.
LISTS: tuple[tuple[str, ValueRule], ...] = (
    ("initContainers", _init), ("containers", CONTAINER), ("ephemeralContainers", _ephemeral),
)  # fmt: skip


def volumes_exist(container: Any, at: FieldPath, errors: ErrorList, volumes: Any) -> None:
    """Check that mounts and devices refer to volumes of the Pod, and that no volume is both."""
    mounts, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    mounted = {mount.get("name"): mount.get("mountPath") for mount in mounts}
    raw = {device.get("name"): device.get("devicePath") for device in devices}
    for index, mount in enumerate(mounts):
        here, name = ((at, "volumeMounts"), index), mount.get("name", "")
        if name not in volumes:
            errors.not_found((here, "name"), name)
        _not_both(mount, "mountPath", here, raw, "volumeDevices", errors)
    for index, device in enumerate(devices):
        here, name = ((at, "volumeDevices"), index), device.get("name", "")
        if name not in volumes:
            errors.not_found((here, "name"), name)
        elif not volumes[name].keys() & {"persistentVolumeClaim", "ephemeral"}:
            errors.invalid((here, "name"), name, "must be a volume that a claim is for")
        _not_both(device, "devicePath", here, mounted, "volumeMounts", errors)


def _not_both(one: Any, path: str, at: FieldPath, others: Any, others_name: str, errors: ErrorList) -> None:
    if one.get("name") in others:
        errors.invalid((at, "name"), one.get("name"), f"must not already exist in {others_name}")
    if one.get(path) in others.values():
        errors.invalid((at, path), one.get(path), f"must not already exist as a path in {others_name}")
