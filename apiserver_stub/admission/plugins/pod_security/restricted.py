"""The checks that the level restricted adds."""

from apiserver_stub.admission.plugins.pod_security.baseline import (
    added,
    forbidden_addition,
    seccomp_baseline,
    seccomp_type,
)
from apiserver_stub.admission.plugins.pod_security.pods import NOTHING, CheckedPod, Violation, named, setters, uses


def allow_privilege_escalation(pod: CheckedPod) -> Violation | None:
    names = [one.name for one in pod.containers if one.security.get("allowPrivilegeEscalation") is not False]
    detail = f"{named('container', names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail) if names else None


def capabilities_restricted(pod: CheckedPod) -> Violation | None:
    undropped = [
        one.name
        for one in pod.containers
        if "ALL" not in ((one.security.get("capabilities") or NOTHING).get("drop") or ())
    ]
    details = []
    if undropped:
        details.append(f'{named("container", undropped)} must set securityContext.capabilities.drop=["ALL"]')
    names, found = added(pod, ("NET_BIND_SERVICE",))
    if names:
        details.append(forbidden_addition(names, found))
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def restricted_volumes(pod: CheckedPod) -> Violation | None:
    bad = [volume for volume in pod.spec.get("volumes") or () if _VOLUMES.isdisjoint(volume)]
    if not bad:
        return None
    types = sorted({next((source for source in _SOURCES if source in volume), "unknown") for volume in bad})
    names = [volume.get("name", "") for volume in bad]
    detail = f"{named('volume', names)} {uses(names)} {named('restricted volume type', types)}"
    return Violation("restricted volume types", detail)


_VOLUMES = frozenset(
    {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
        "secret",
    }
)  # fmt: skip
_SOURCES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd",
    "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def run_as_non_root(pod: CheckedPod) -> Violation | None:
    by_pod = pod.security.get("runAsNonRoot")
    values = [(one.name, one.security.get("runAsNonRoot")) for one in pod.containers]
    who = setters(by_pod is False, [name for name, value in values if value is False])
    if who:
        return Violation("runAsNonRoot != true", f"{who} must not set securityContext.runAsNonRoot=false")
    silent = [name for name, value in values if value is None] if by_pod is None else ()
    if not silent:
        return None
    detail = f"pod or {named('container', silent)} must set securityContext.runAsNonRoot=true"
    return Violation("runAsNonRoot != true", detail)


def run_as_user(pod: CheckedPod) -> Violation | None:
    names = [one.name for one in pod.containers if one.security.get("runAsUser") == 0]
    who = setters(pod.security.get("runAsUser") == 0, names)
    return Violation("runAsUser=0", f"{who} must not set runAsUser=0") if who else None


def seccomp_restricted(pod: CheckedPod) -> Violation | None:
    if violation := seccomp_baseline(pod):
        return violation
    if seccomp_type(pod.security) is not None:
        return None
    silent = [one.name for one in pod.containers if seccomp_type(one.security) is None]
    if not silent:
        return None
    wanted = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {named('container', silent)} {wanted}")
