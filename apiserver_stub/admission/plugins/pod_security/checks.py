"""The checks of the Pod Security Standards by level and version, since v1.0 (KEP-2579)."""

from functools import lru_cache
from typing import NamedTuple

from apiserver_stub.admission.plugins.pod_security import baseline, restricted
from apiserver_stub.admission.plugins.pod_security.pods import CheckedPod, Look, Violation
from apiserver_stub.admission.plugins.pod_security.policy import Level, LevelVersion


class Revision(NamedTuple):
    """A check since a minor version; the checks that it overrides are skipped."""

    since: int
    look: Look
    overrides: tuple[str, ...] = ()


class Check(NamedTuple):
    """A check with its id, which orders messages; baseline checks also apply to restricted. It is skipped for pods
    without any of its `fields`; a check without fields always runs.
    """

    id: str
    level: Level
    fields: frozenset[str]
    revisions: tuple[Revision, ...]


def _unless_windows(look: Look) -> Look:
    """Return a check that skips Windows pods, which cannot set its fields."""
    return lambda pod: None if pod.is_windows else look(pod)


def _unless_own_users(look: Look) -> Look:
    """Return a check that skips pods with their own user namespace."""
    return lambda pod: None if pod.has_own_users else look(pod)


_B: Level = "baseline"
_R: Level = "restricted"
_OWN_CAPABILITIES, _OWN_SECCOMP, _PROC_MOUNT = ("capabilities_baseline",), ("seccompProfile_baseline",), ("procMount",)


def _fields(*names: str) -> frozenset[str]:
    return frozenset(names)


CHECKS: tuple[Check, ...] = (
    Check("appArmorProfile", _B, _fields("appArmorProfile", "annotations"), (Revision(0, baseline.app_armor_profile),)),
    Check("capabilities_baseline", _B, _fields("capabilities"), (Revision(0, baseline.capabilities_baseline),)),
    Check("hostNamespaces", _B, _fields("hostNetwork", "hostPID", "hostIPC"), (Revision(0, baseline.host_namespaces),)),
    Check("hostPathVolumes", _B, _fields("volumes"), (Revision(0, baseline.host_path_volumes),)),
    Check("hostPorts", _B, _fields("ports"), (Revision(0, baseline.host_ports),)),
    Check(
        "hostProbesAndHostLifecycle",
        _B,
        _fields("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
        (Revision(34, baseline.host_probes_and_lifecycle),),
    ),
    Check("privileged", _B, _fields("privileged"), (Revision(0, baseline.privileged),)),
    Check(
        "procMount",
        _B,
        _fields("procMount"),
        (Revision(0, baseline.proc_mount), Revision(35, _unless_own_users(baseline.proc_mount))),
    ),
    Check(
        "seLinuxOptions",
        _B,
        _fields("seLinuxOptions"),
        (
            Revision(0, baseline.se_linux_options(baseline.TYPES)),
            Revision(31, baseline.se_linux_options(baseline.TYPES | {"container_engine_t"})),
        ),
    ),
    Check(
        "seccompProfile_baseline",
        _B,
        _fields("seccompProfile", "annotations"),
        (Revision(0, baseline.seccomp_annotations), Revision(19, baseline.seccomp_baseline)),
    ),
    Check(
        "sysctls",
        _B,
        _fields("sysctls"),
        (
            Revision(0, baseline.sysctls(baseline.SYSCTLS)),
            Revision(27, baseline.sysctls(baseline.SYSCTLS_27)),
            Revision(29, baseline.sysctls(baseline.SYSCTLS_29)),
            Revision(32, baseline.sysctls(baseline.SYSCTLS_32)),
        ),
    ),
    Check("windowsHostProcess", _B, _fields("windowsOptions"), (Revision(0, baseline.windows_host_process),)),
    Check(
        "allowPrivilegeEscalation",
        _R,
        _fields(),
        (
            Revision(8, restricted.allow_privilege_escalation),
            Revision(25, _unless_windows(restricted.allow_privilege_escalation)),
        ),
    ),
    Check(
        "capabilities_restricted",
        _R,
        _fields(),
        (
            Revision(22, restricted.capabilities_restricted, _OWN_CAPABILITIES),
            Revision(25, _unless_windows(restricted.capabilities_restricted), _OWN_CAPABILITIES),
        ),
    ),
    Check("procMount_restricted", _R, _fields("procMount"), (Revision(35, baseline.proc_mount, _PROC_MOUNT),)),
    Check(
        "restrictedVolumes", _R, _fields("volumes"), (Revision(0, restricted.restricted_volumes, ("hostPathVolumes",)),)
    ),
    Check(
        "runAsNonRoot",
        _R,
        _fields(),
        (Revision(0, restricted.run_as_non_root), Revision(35, _unless_own_users(restricted.run_as_non_root))),
    ),
    Check(
        "runAsUser",
        _R,
        _fields("runAsUser"),
        (Revision(23, restricted.run_as_user), Revision(35, _unless_own_users(restricted.run_as_user))),
    ),
    Check(
        "seccompProfile_restricted",
        _R,
        _fields(),
        (
            Revision(19, restricted.seccomp_restricted, _OWN_SECCOMP),
            Revision(25, _unless_windows(restricted.seccomp_restricted), _OWN_SECCOMP),
        ),
    ),
)
"""In the order of messages: baseline before restricted, each by name."""
_NEWEST = max(revision.since for check in CHECKS for revision in check.revisions)
"""Later versions use the checks of this version."""


def violations(asked: LevelVersion, pod: CheckedPod) -> list[Violation]:
    """Return the violations of a level by a pod."""
    fields = pod.fields
    return [
        found
        for needed, look in _looks(asked)
        if (not needed or not needed.isdisjoint(fields)) and (found := look(pod)) is not None
    ]


@lru_cache(256)  # three levels of some dozens of versions
def _looks(asked: LevelVersion) -> tuple[tuple[frozenset[str], Look], ...]:
    level, minor = asked.level, min(asked.minor, _NEWEST)
    if level == "privileged":
        return ()
    chosen = {
        check: [revision for revision in check.revisions if revision.since <= minor][-1:]
        for check in CHECKS
        if check.level in (_B, level)
    }
    overridden = {name for found in chosen.values() for revision in found for name in revision.overrides}
    return tuple(
        (check.fields, revision.look)
        for check, found in chosen.items()
        if check.id not in overridden
        for revision in found
    )
