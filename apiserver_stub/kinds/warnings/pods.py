"""Warnings about pods and pod templates."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import FieldPath
from apiserver_stub.kinds.memo import SoundSpecs
from apiserver_stub.kinds.strategies.pods import ANNOTATION, profile_of
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.warnings.common import (
    annotation,
    fractional,
    of_address,
    of_affinity,
    of_label,
    of_labels,
    warning_at,
)
from apiserver_stub.kinds.warnings.overlaps import of_ports, of_volume
from controller_manager.common.api.tree import Tree

_BYTES = ("memory", "ephemeral-storage")
_SECCOMP_OF_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
_USE_SECCOMP = 'has no effect since v1.27: use the field "seccompProfile"'
_NO_SELECTOR = "without a labelSelector no pod matches"
_DEAD: Mapping[str, str] = MappingProxyType({
    "scheduler.alpha.kubernetes.io/critical-pod": 'has no effect since v1.16: use the field "priorityClassName"',
    "security.alpha.kubernetes.io/sysctls": 'has no effect since v1.11: use the field "sysctls"',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'has no effect since v1.11: use the field "sysctls"',
})  # fmt: skip
VOLUMES: Mapping[str, str] = MappingProxyType({
    "photonPersistentDisk": "deprecated in v1.11, without effect since v1.16",
    "gitRepo": "deprecated in v1.11, disabled by default since v1.33",
    "scaleIO": "deprecated in v1.16, without effect since v1.22",
    "flocker": "deprecated in v1.22, without effect since v1.25",
    "storageos": "deprecated in v1.22, without effect since v1.25",
    "quobyte": "deprecated in v1.22, without effect since v1.25",
    "glusterfs": "deprecated in v1.25, without effect since v1.26",
    "cephfs": "deprecated in v1.28, without effect since v1.31",
    "rbd": "deprecated in v1.28, without effect since v1.31",
})  # fmt: skip
_LONGEST_PREFIX, _DRAWN = 58, "x2x2x"  # maximum length of a generated name's prefix, and a sample suffix
_OLD = ".alpha.kubernetes.io/"  # part of every annotation name that a field has replaced
_LISTS = ("initContainers", "containers", "ephemeralContainers")
_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def of_pod(pod: Tree, old: Tree | None) -> list[str]:
    """Return warnings for a new pod. Updates get none."""
    if old is not None:
        return []
    messages, spec = of_name(pod, "it is the hostname of the pod"), pod.get("spec") or {}
    messages += _of_old_annotations(pod, spec, None) + _of_spec(spec, (None, "spec"))
    return messages + _app_armor(pod, None, is_pod=True)


def of_name(tree: Tree, why: str = "names and hostnames of its pods begin with it") -> list[str]:
    """Return warnings for a name that must also be a DNS label elsewhere. A name to be generated is checked by its
    prefix.
    """
    metadata = tree.get("metadata", {})
    wrong = names.label(metadata.get("name") or metadata.get("generateName", "")[:_LONGEST_PREFIX] + _DRAWN)
    return [warning_at(((None, "metadata"), "name"), f"{why} and should be a DNS label: {wrong}")] if wrong else []


def of_template(template: Any, at: FieldPath) -> list[str]:
    """Return warnings for a pod template."""
    spec = (template or {}).get("spec") or {}
    messages = _of_old_annotations(template, spec, at)
    finding = _SOUND.find(spec)
    if not finding.sound:
        of_spec = _of_spec(spec, (at, "spec"))
        messages += of_spec
        finding.sound = not of_spec
    return messages + _app_armor(template, at, is_pod=False)


_SOUND = SoundSpecs()


def _of_old_annotations(template: Any, spec: Tree, at: FieldPath) -> list[str]:
    annotations = (template or {}).get("metadata", {}).get("annotations") or ()
    return _of_annotations(template, spec, at) if _OLD in "\n".join(annotations) else []


def _of_spec(spec: Tree, at: FieldPath) -> list[str]:
    messages: list[str] = []
    for field, look in _LOOKS.items():
        if field in spec:
            messages += look(spec[field], (at, field))
    containers = list(_containers(spec, at))
    for container, place in containers:
        if "resources" in container or "env" in container:
            messages += _of_container(container, place)
    return messages + of_ports(containers)


def claim_spec(spec: Any, at: FieldPath) -> list[str]:
    """Return warnings for the spec of a claim."""
    resources = (spec or {}).get("resources") or {}
    return [
        text
        for side in ("requests", "limits")
        for text in fractional(resources.get(side), ("storage",), ((at, "resources"), side))
    ]


def _containers(spec: Tree, at: FieldPath) -> Iterator[tuple[Tree, FieldPath]]:
    for field in _LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            yield container, ((at, field), index)


def _of_annotations(template: Tree, spec: Tree, at: FieldPath) -> list[str]:
    there = (at, "metadata"), "annotations"
    messages = [
        warning_at((there, f"[{name}]"), why) for name, why in _DEAD.items() if annotation(template, name) is not None
    ]
    if "seccompProfile" not in (spec.get("securityContext") or {}):
        messages += _of_annotation(template, _SECCOMP_OF_POD, there)
    for container, _ in _containers(spec, None):
        if "seccompProfile" not in (container.get("securityContext") or {}):
            messages += _of_annotation(template, _SECCOMP + container.get("name", ""), there)
    return messages


def _of_annotation(template: Tree, name: str, at: FieldPath) -> list[str]:
    return [] if annotation(template, name) is None else [warning_at((at, f"[{name}]"), _USE_SECCOMP)]


def _app_armor(template: Any, at: FieldPath, *, is_pod: bool) -> list[str]:
    """Return warnings for AppArmor annotations without the corresponding field. Of a pod only annotations that differ
    from its field are reported.
    """
    annotations = (template or {}).get("metadata", {}).get("annotations") or ()
    if ANNOTATION not in "\n".join(annotations):
        return []
    spec, messages = template.get("spec") or {}, []
    if is_pod and (spec.get("os") or {}).get("name") == "windows":
        return []
    whole = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container, _ in _containers(spec, None):
        name = ANNOTATION + container.get("name", "")
        text = annotation(template, name)
        if text is None or "appArmorProfile" in (container.get("securityContext") or {}):
            continue
        if profile_of(text) != whole or whole is None:
            there = (((at, "metadata"), "annotations"), f"[{name}]")
            messages.append(warning_at(there, 'deprecated since v1.30: use the field "appArmorProfile"'))
    return messages


def _of_container(container: Tree, at: FieldPath) -> list[str]:
    messages, resources = [], container.get("resources") or {}
    for side in ("limits", "requests"):
        messages += fractional(resources.get(side), _BYTES, ((at, "resources"), side))
    return messages + _hidden_variables(container.get("env") or (), (at, "env"))


def _hidden_variables(variables: Any, at: FieldPath) -> list[str]:
    """Return warnings for duplicate variables, unless the later one refers to the earlier one."""
    if len({variable.get("name", "") for variable in variables}) == len(variables):
        return []
    seen: set[str] = set()
    messages = []
    for index, variable in enumerate(variables):
        name = variable.get("name", "")
        if name not in seen:
            seen.add(name)
            continue
        value, reference = variable.get("value", ""), f"$({name})"
        if "valueFrom" in variable or value == reference or reference not in value:
            why = f'hides previous definition of "{name}", which may be dropped when using apply'
            messages.append(warning_at((at, index), why))
    return messages


def _of_spread(constraints: Any, at: FieldPath) -> list[str]:
    messages = []
    for index, constraint in enumerate(constraints):
        here = (at, index)
        messages += of_label(constraint.get("topologyKey", ""), (here, "topologyKey"))
        if "labelSelector" not in constraint:
            messages.append(warning_at((here, "labelSelector"), _NO_SELECTOR))
    return messages


def _of_affinity(affinity: Any, at: FieldPath) -> list[str]:
    messages = of_affinity(affinity.get("nodeAffinity") or {}, (at, "nodeAffinity"))
    required, preferred = _AFFINITY
    for field in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(field) or {}
        for index, term in enumerate(terms.get(required) or ()):
            if "labelSelector" not in term:
                messages.append(warning_at(((((at, field), required), index), "labelSelector"), _NO_SELECTOR))
        for index, term in enumerate(terms.get(preferred) or ()):
            if "labelSelector" not in (term.get("podAffinityTerm") or {}):
                here = ((((at, field), preferred), index), "podAffinityTerm")
                messages.append(warning_at((here, "labelSelector"), _NO_SELECTOR))
    return messages


def _of_volumes(volumes: Any, at: FieldPath) -> list[str]:
    messages: list[str] = []
    for index, volume in enumerate(volumes):
        here = (at, index)
        messages += [warning_at((here, field), VOLUMES[field]) for field in volume if field in VOLUMES]
        claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if claim:
            messages += claim_spec(claim.get("spec"), (((here, "ephemeral"), "volumeClaimTemplate"), "spec"))
        messages += of_volume(volume)
    return messages


def _of_host_aliases(aliases: Any, at: FieldPath) -> list[str]:
    messages = _twice(aliases, "ip", at)
    for index, alias in enumerate(aliases):
        messages += of_address(alias.get("ip", ""), ((at, index), "ip"))
    return messages


def _of_pull_secrets(secrets: Any, at: FieldPath) -> list[str]:
    messages = _twice(secrets, "name", at)
    empty = [index for index, secret in enumerate(secrets) if not secret.get("name")]
    return messages + [warning_at(((at, index), "name"), "the name is empty") for index in empty]


def _twice(items: Any, field: str, at: FieldPath) -> list[str]:
    seen: set[str] = set()
    messages = []
    for index, item in enumerate(items):
        value = item.get(field, "")
        if value in seen:
            messages.append(warning_at(((at, index), field), f'"{value}" is listed twice'))
        seen.add(value)
    return messages


def _of_dns(config: Any, at: FieldPath) -> list[str]:
    servers = config.get("nameservers") or ()
    return [t for i, text in enumerate(servers) for t in of_address(text, ((at, "nameservers"), i))]


def _of_grace(seconds: Any, at: FieldPath) -> list[str]:
    return [warning_at(at, "must not be negative; 1 is used")] if seconds < 0 else []


_LOOKS: Mapping[str, Callable[[Any, FieldPath], list[str]]] = MappingProxyType({
    "nodeSelector": of_labels,
    "affinity": _of_affinity,
    "topologySpreadConstraints": _of_spread,
    "volumes": _of_volumes,
    "hostAliases": _of_host_aliases,
    "imagePullSecrets": _of_pull_secrets,
    "overhead": lambda amounts, at: fractional(amounts, _BYTES, at),
    "terminationGracePeriodSeconds": _of_grace,
    "dnsConfig": _of_dns,
})  # fmt: skip
