"""The checks of the level baseline. Container names are listed in pod order, values alphabetically."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from apiserver_stub.admission.plugins.pod_security.pods import (
    NOTHING,
    CheckedPod,
    Look,
    Violation,
    named,
    plural,
    quoted,
    setters,
    uses,
)
from apiserver_stub.common.error_list import shown
from controller_manager.common.api.tree import Tree


def app_armor_profile(pod: CheckedPod) -> Violation | None:
    types: set[str] = set()

    def is_bad(security: Mapping[str, Any]) -> bool:
        profile = security.get("appArmorProfile")
        if profile is None or profile.get("type") in _PROFILES:
            return False
        types.add(profile.get("type", ""))
        return True

    who = setters(is_bad(pod.security), [one.name for one in pod.containers if is_bad(one.security)])
    annotated = [
        f"{key}={shown(value)}"
        for key, value in sorted(pod.annotations.items())
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    ]
    values = [*sorted(types), *annotated]
    if not values:
        return None
    if annotated:
        who = " and ".join(filter(None, (who, plural("annotation", len(annotated)))))
    detail = f"{who} must not set AppArmor profile type to {quoted(values)}"
    return Violation(plural("forbidden AppArmor profile", len(values)), detail)


_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_PROFILES = ("RuntimeDefault", "Localhost")


def added(pod: CheckedPod, allowed: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the containers that add other capabilities, and these capabilities."""
    names, found = [], set()
    for name, _, security in pod.containers:
        if security and (
            beyond := [one for one in (security.get("capabilities") or NOTHING).get("add") or () if one not in allowed]
        ):
            names.append(name)
            found.update(beyond)
    return names, sorted(found)


def forbidden_addition(names: Sequence[str], capabilities: Sequence[str]) -> str:
    return f"{named('container', names)} must not include {quoted(capabilities)} in securityContext.capabilities.add"


def capabilities_baseline(pod: CheckedPod) -> Violation | None:
    names, found = added(pod, _CAPABILITIES)
    return Violation("non-default capabilities", forbidden_addition(names, found)) if names else None


_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
        "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip


def host_namespaces(pod: CheckedPod) -> Violation | None:
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(field)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def host_path_volumes(pod: CheckedPod) -> Violation | None:
    found = [volume.get("name", "") for volume in pod.spec.get("volumes") or () if "hostPath" in volume]
    return Violation("hostPath volumes", named("volume", found)) if found else None


def host_ports(pod: CheckedPod) -> Violation | None:
    names, ports = [], set()
    for name, container, _ in pod.containers:
        if found := [str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")]:
            names.append(name)
            ports.update(found)
    if not names:
        return None
    detail = f"{uses(names)} {plural('hostPort', len(ports))} {', '.join(sorted(ports))}"
    return Violation("hostPort", f"{named('container', names)} {detail}")


def host_probes_and_lifecycle(pod: CheckedPod) -> Violation | None:
    names, hosts = set(), set()
    for name, container, _ in pod.containers:
        if found := [*_hosts(container)]:
            names.add(name)
            hosts.update(found)
    if not names:
        return None
    containers = sorted(names)
    detail = f"{uses(containers)} {named('probe or lifecycle host', sorted(hosts))}"
    return Violation("probe or lifecycle host", f"{named('container', containers)} {detail}")


def _hosts(container: Tree) -> Iterator[str]:
    """Yield the hosts that the probes and hooks of a container name."""
    handlers = [container[field] for field in _PROBES if field in container]
    if lifecycle := container.get("lifecycle"):
        handlers += [lifecycle[field] for field in _HOOKS if field in lifecycle]
    for handler in handlers:
        for action in _ACTIONS:
            if action in handler and (host := handler[action].get("host")):
                yield host


_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_ACTIONS = ("httpGet", "tcpSocket")


def privileged(pod: CheckedPod) -> Violation | None:
    names = [one.name for one in pod.containers if one.security.get("privileged")]
    detail = f"{named('container', names)} must not set securityContext.privileged=true"
    return Violation("privileged", detail) if names else None


def proc_mount(pod: CheckedPod) -> Violation | None:
    bad = [one for one in pod.containers if one.security.get("procMount", "Default") != "Default"]
    if not bad:
        return None
    types = sorted({one.security["procMount"] for one in bad})
    names = named("container", [one.name for one in bad])
    return Violation("procMount", f"{names} must not set securityContext.procMount to {quoted(types)}")


def se_linux_options(allowed: frozenset[str]) -> Look:
    """Return the check that allows these types."""

    def look(pod: CheckedPod) -> Violation | None:
        bad: list[Mapping[str, Any]] = []

        def is_bad(security: Mapping[str, Any]) -> bool:
            options = security.get("seLinuxOptions")
            if not options or not (
                options.get("type", "") not in allowed or options.get("user") or options.get("role")
            ):
                return False
            bad.append(options)
            return True

        who = setters(is_bad(pod.security), [one.name for one in pod.containers if is_bad(one.security)])
        if not bad:
            return None
        types = sorted({options.get("type", "") for options in bad} - allowed)
        details = [named("type", types)] if types else []
        details += [f"{field} may not be set" for field in ("user", "role") if any(map(_getter(field), bad))]
        return Violation("seLinuxOptions", f"{who} set forbidden securityContext.seLinuxOptions: {'; '.join(details)}")

    return look


def _getter(field: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda tree: tree.get(field)


TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})


def seccomp_annotations(pod: CheckedPod) -> Violation | None:
    """Check the legacy seccomp annotations."""
    if not pod.annotations:
        return None
    keys = {f"{_SECCOMP}/pod", *(f"container.{_SECCOMP}/{one.name}" for one in pod.containers)}
    found = [
        f"{key}={shown(value)}"
        for key, value in sorted(pod.annotations.items())
        if key in keys and value not in ("runtime/default", "docker/default") and not value.startswith("localhost/")
    ]
    if not found:
        return None
    return Violation("seccompProfile", f"forbidden {plural('annotation', len(found))} {', '.join(found)}")


_SECCOMP = "seccomp.security.alpha.kubernetes.io"


def seccomp_type(security: Mapping[str, Any]) -> str | None:
    profile = security.get("seccompProfile")
    return None if profile is None else str(profile.get("type", ""))


def seccomp_baseline(pod: CheckedPod) -> Violation | None:
    by_pod = seccomp_type(pod.security)
    types = {by_pod} if by_pod is not None and by_pod not in _PROFILES else set()
    names = []
    for name, _, security in pod.containers:
        if security and (found := seccomp_type(security)) is not None and found not in _PROFILES:
            names.append(name)
            types.add(found)
    if not types:
        return None
    who = setters(by_pod is not None and by_pod not in _PROFILES, names)
    detail = f"{who} must not set securityContext.seccompProfile.type to {quoted(sorted(types))}"
    return Violation("seccompProfile", detail)


def sysctls(allowed: frozenset[str]) -> Look:
    """Return the check that allows these."""

    def look(pod: CheckedPod) -> Violation | None:
        found = [one["name"] for one in pod.security.get("sysctls") or () if one["name"] not in allowed]
        return Violation("forbidden sysctls", ", ".join(found)) if found else None

    return look


SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
    }
)  # fmt: skip
SYSCTLS_27 = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_29 = SYSCTLS_27 | {
    f"net.ipv4.tcp_{name}" for name in ("keepalive_time", "fin_timeout", "keepalive_intvl", "keepalive_probes")
}
SYSCTLS_32 = SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def windows_host_process(pod: CheckedPod) -> Violation | None:
    def is_bad(security: Mapping[str, Any]) -> bool:
        return bool((security.get("windowsOptions") or NOTHING).get("hostProcess"))

    who = setters(is_bad(pod.security), [one.name for one in pod.containers if is_bad(one.security)])
    if not who:
        return None
    return Violation("hostProcess", f"{who} must not set securityContext.windowsOptions.hostProcess=true")
