"""Validation of pod specs, including fields that the operating system of the pod forbids."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.memo import SoundSpecs
from apiserver_stub.kinds.rules.combine import (
    GREATEST,
    ValueRule,
    between,
    both,
    distinct_by,
    each,
    form,
    need,
    record,
)
from apiserver_stub.kinds.rules.containers import LISTS, POD_CONTEXT, resizes, sleeps, volumes_exist
from apiserver_stub.kinds.rules.formats import ADDRESS, LABEL, SUBDOMAIN
from apiserver_stub.kinds.rules.metadata import labels
from apiserver_stub.kinds.rules.quantities import HUGE, POD_RESOURCES, RESOURCES, compares, number
from apiserver_stub.kinds.rules.selectors import AFFINITY, GATES, READINESS_GATES, SPREADING
from apiserver_stub.kinds.rules.tolerations import TOLERATIONS
from apiserver_stub.kinds.rules.volumes import volumes as judge_volumes
from apiserver_stub.kinds.rules.windows import host_processes
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.pod_resources import container_total
from controller_manager.common.api.quantity import Quantity, parse

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


def fits_system(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that the Pod has no fields that its operating system does not support."""
    system = (spec.get("os") or {}).get("name")
    if system == "linux":
        for here, context in _contexts(spec, at):
            _without(context, ("windowsOptions",), here, errors, _NOT_ON_LINUX)
    elif system == "windows":
        _without(spec, _POD_FIELDS, at, errors, _NOT_ON_WINDOWS)
        for index, (here, context) in enumerate(_contexts(spec, at)):
            _without(context, _CONTAINER_CONTEXT if index else _POD_CONTEXT, here, errors, _NOT_ON_WINDOWS)


def _without(tree: Any, names: tuple[str, ...], at: FieldPath, errors: ErrorList, why: str) -> None:
    for name in names:
        if tree.get(name) is not None:
            errors.forbidden((at, name), why)


def _contexts(spec: Any, at: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the security contexts of the Pod and of its containers."""
    yield (at, "securityContext"), spec.get("securityContext") or {}
    for name in _LISTS:
        for index, container in enumerate(spec.get(name) or ()):
            yield (((at, name), index), "securityContext"), container.get("securityContext") or {}


_NAMESERVERS, _SEARCHES, _SEARCH_LENGTH = 3, 32, 2048
_HOSTNAME = 64
_DNS_AT_LEAST = "must provide at least one DNS nameserver when `dnsPolicy` is None"


def _search(domain: str) -> str:
    return "" if domain == "." else names.loose_subdomain(domain.removesuffix("."))


def _whole_hostname(name: str) -> str:
    return names.subdomain(name) if len(name) <= _HOSTNAME else f"must be no more than {_HOSTNAME} characters"


def _few_nameservers(config: Any, at: FieldPath, errors: ErrorList) -> None:
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if len(servers) > _NAMESERVERS:
        errors.invalid((at, "nameservers"), servers, f"must not have more than {_NAMESERVERS} nameservers")
    if len(searches) > _SEARCHES:
        errors.invalid((at, "searches"), searches, f"must not have more than {_SEARCHES} search paths")
    if len(" ".join(searches)) > _SEARCH_LENGTH:
        why = f"must not have more than {_SEARCH_LENGTH} characters (including spaces) in the search list"
        errors.invalid((at, "searches"), searches, why)


def _option(option: Any, at: FieldPath, errors: ErrorList) -> None:
    if not option.get("name"):
        errors.required(at, "must not be empty")


_DNS = record({"nameservers": each(ADDRESS), "searches": each(form(_search)), "options": each(_option)},
              _few_nameservers)  # fmt: skip


def _system(system: Any, at: FieldPath, errors: ErrorList) -> None:
    name = system.get("name")
    if not name:
        errors.required((at, "name"))
    elif name not in ("linux", "windows"):
        errors.unsupported(at, name, ("linux", "windows"))


def _overhead(values: Any, at: FieldPath, errors: ErrorList) -> None:
    RESOURCES({"limits": values}, at, errors)


def _claim(claim: Any, at: FieldPath, errors: ErrorList) -> None:
    given = sum(name in claim for name in ("resourceClaimName", "resourceClaimTemplateName"))
    if given > 1:
        why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        errors.invalid(at, claim, why)
    elif not given:
        errors.invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")


_CLAIMS = both(
    each(
        record(
            {"name": LABEL, "resourceClaimName": SUBDOMAIN, "resourceClaimTemplateName": SUBDOMAIN},
            need("name"),
            _claim,
        )
    ),
    distinct_by("name"),
)


def _one_hostname(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    for name in ("setHostnameAsFQDN", "hostNetwork"):
        if "hostnameOverride" in spec and spec.get(name):
            errors.forbidden((at, "hostnameOverride"), f"may not be set where {name} is true")


def _pod_resources(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check Pod-level resources (KEP-2837)."""
    resources, here = spec.get("resources"), (at, "resources")
    if resources is None:
        return
    if (spec.get("os") or {}).get("name") == "windows":
        errors.forbidden(here, _NOT_ON_WINDOWS)
        return
    if "claims" in resources:
        errors.forbidden((here, "claims"), "may only be set for containers")
    POD_RESOURCES(resources, here, errors)
    _holds_containers(spec, resources, here, errors)


def _holds_containers(spec: Any, resources: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that Pod-level requests cover the sum of the containers, and that no container has a higher limit."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    sums = {kind: container_total(spec, partial(_amounts_of, kind)) for kind in ("requests", "limits")}
    for kind, named in (("requests", requests), ("limits", {name for name in limits if name.startswith(HUGE)})):
        for name in sorted(sums[kind].keys() & set(named)):
            value = resources[kind][name]
            if (asked := number(value)) is not None and asked < sums[kind][name].number:
                errors.invalid(((at, kind), key(name)), value, "must not be less than what the containers ask for")
    for index, container in enumerate(spec.get("containers") or ()):
        for name, value in (get_in(container, ("resources", "limits")) or {}).items():
            if name in limits and not compares(value, limits[name], Decimal.__le__):
                here = ((((at, "containers"), index), key(name)), "limits")
                errors.invalid(here, value, "must not be more than the limit of the pod")


def _amounts_of(kind: str, container: Any) -> Mapping[str, Quantity]:
    found = get_in(container, ("resources", kind)) or {}
    return {name: parse(value) for name, value in found.items() if number(value) is not None}


def _dns(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    config, here = spec.get("dnsConfig"), (at, "dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            errors.required(here, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            errors.required((here, "nameservers"), _DNS_AT_LEAST)
            return
    if config is not None:
        _DNS(config, here, errors)


# Names as kube-apiserver spells them.
_HOST_NAMESPACES = {"hostNetwork": "hostNetwork", "hostPID": "HostPID", "hostIPC": "HostIPC"}


def _host_namespaces(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "`shareProcessNamespace` and `hostPID` exclude each other"
        errors.invalid((at, "shareProcessNamespace"), True, why)
    if spec.get("hostUsers") is False:
        for name, field in _HOST_NAMESPACES.items():
            if spec.get(name):
                errors.forbidden((at, field), "when `hostUsers` is false")
        for here, container in _containers(spec, at, *_LISTS):
            if container.get("volumeDevices"):
                errors.forbidden((here, "volumeDevices"), "when `hostUsers` is false")


_ROWS: Mapping[str, ValueRule] = MappingProxyType({
    "activeDeadlineSeconds": between(1, GREATEST), "affinity": AFFINITY,
    "hostAliases": each(record({"ip": ADDRESS, "hostnames": each(SUBDOMAIN)})), "hostname": LABEL,
    "hostnameOverride": form(_whole_hostname),
    "nodeName": SUBDOMAIN, "nodeSelector": labels, "os": _system,
    "overhead": _overhead, "priorityClassName": SUBDOMAIN, "readinessGates": READINESS_GATES,
    "resourceClaims": _CLAIMS, "runtimeClassName": SUBDOMAIN, "schedulingGates": GATES,
    "securityContext": POD_CONTEXT, "serviceAccountName": SUBDOMAIN, "subdomain": LABEL,
    "tolerations": TOLERATIONS,
    "topologySpreadConstraints": SPREADING,
})  # fmt: skip
_PLAIN = record(_ROWS, _pod_resources, _one_hostname, _dns, _host_namespaces, host_processes, fits_system)


def pod_spec(spec: Any, at: FieldPath, errors: ErrorList, claimed: Iterable[str] = ()) -> None:
    """Report all errors in a pod spec. `claimed` are the volumes that its controller adds."""
    claimed = tuple(claimed)
    finding = _SOUND.find(spec, claimed)
    if not finding.sound:
        known = len(errors.causes)
        _judge(spec, at, errors, claimed)
        finding.sound = len(errors.causes) == known and not errors.full


_SOUND = SoundSpecs()


def _judge(spec: Any, at: FieldPath, errors: ErrorList, claimed: Iterable[str]) -> None:
    _PLAIN(spec, at, errors)
    if not spec.get("containers"):
        errors.required((at, "containers"))
    volumes = judge_volumes(_volumes(spec, claimed), (at, "volumes"), errors)
    claims = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    _known_claims(spec, at, errors, claims)
    grace = spec.get("terminationGracePeriodSeconds")
    for name, rule in LISTS:
        for index, container in enumerate(spec.get(name) or ()):
            here = ((at, name), index)
            rule(container, here, errors)
            if "volumeMounts" in container or "volumeDevices" in container:
                volumes_exist(container, here, errors, volumes)
            if (container.get("securityContext") or {}).get("procMount") == "Unmasked":
                _unmasked(spec, (here, "securityContext"), errors)
            if spec.get("restartPolicy") == "Never":
                resizes(container, here, errors)
            if "lifecycle" in container:
                sleeps(container["lifecycle"], (here, "lifecycle"), errors, grace)
            if claims or "claims" in (container.get("resources") or ()):
                _known_claims(container, here, errors, claims)
    _names_differ(spec, at, errors)
    _host_ports(spec, at, errors)
    _files_exist(spec, at, errors)


def _volumes(spec: Any, claimed: Iterable[str]) -> list[Any]:
    """Return the volumes of a Pod. Volumes added by its controller replace those with the same name."""
    added = {name: {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claimed}
    return [*added.values(), *(volume for volume in spec.get("volumes") or () if volume.get("name", "") not in added)]


def _files_exist(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that `fileKeyRef` variables refer to suitable volumes of the Pod."""
    volumes = {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}
    for here, container in _containers(spec, at, *_LISTS):
        for index, variable in enumerate(container.get("env") or ()):
            source = get_in(variable, ("valueFrom", "fileKeyRef"))
            if source is None:
                continue
            place = (((((here, "env"), index), "valueFrom"), "fileKeyRef"), "volumeName")
            name = source.get("volumeName", "")
            if name not in volumes:
                errors.not_found(place, name)
            elif "emptyDir" not in volumes[name]:
                errors.invalid(place, name, "must be a volume of the type emptyDir")


def _unmasked(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    if spec.get("hostUsers") is not False:
        errors.invalid((at, "procMount"), "Unmasked", "`hostUsers` must be false to use `Unmasked`")


def _known_claims(whole: Any, at: FieldPath, errors: ErrorList, known: set[Any]) -> None:
    """Check that a container, or the Pod, only uses claims of the Pod."""
    for index, claim in enumerate((whole.get("resources") or {}).get("claims") or ()):
        if claim.get("name") and claim["name"] not in known:
            errors.not_found((((at, "resources"), "claims"), index), claim["name"])


def _containers(spec: Any, at: FieldPath, *lists: str) -> Iterator[tuple[FieldPath, Any]]:
    for name in lists:
        for index, container in enumerate(spec.get(name) or ()):
            yield ((at, name), index), container


def _names_differ(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    seen: set[Any] = set()
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for here, container in _containers(spec, at, field):
            name = container.get("name", "")
            if name in seen:
                errors.duplicate((here, "name"), name)
            if name or field != "initContainers":
                seen.add(name)
        seen.update(container.get("name", "") for container in spec.get(field) or ())
    if "ephemeralContainers" in spec:
        _targets_exist(spec, at, errors)


def _targets_exist(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    known = {container.get("name") for _, container in _containers(spec, at, "containers", "initContainers")}
    for here, container in _containers(spec, at, "ephemeralContainers"):
        target = container.get("targetContainerName")
        if target and target not in known:
            errors.not_found((here, "targetContainerName"), target)


def _host_ports(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that containers that run at the same time use different host ports."""
    network, seen = spec.get("hostNetwork"), set[Any]()
    for here, container in _containers(spec, at, "containers"):
        for index, port in enumerate(container.get("ports") or ()):
            host, inner = port.get("hostPort"), port.get("containerPort")
            if not host:
                continue
            at_port = (((here, "ports"), index), "hostPort")
            taken = f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{host}"
            if taken in seen:
                errors.duplicate(at_port, taken)
            seen.add(taken)
            if network and host != inner:
                errors.invalid(at_port, host, "must match `containerPort` when `hostNetwork` is true")
