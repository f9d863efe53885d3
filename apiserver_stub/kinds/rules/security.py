"""The rules of security contexts, of Pods and of containers."""

import re
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    GREATEST,
    Rule,
    between,
    both,
    distinct_by,
    each,
    form,
    need,
    one_of,
    record,
)
from apiserver_stub.kinds.rules.formats import descending

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
