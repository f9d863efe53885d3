"""Validation of Pods, pod templates, and updates of Pods."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import GREATEST, ChangeRule, KindRules, ValueRule, never, record
from apiserver_stub.kinds.rules.container_statuses import change_container_statuses
from apiserver_stub.kinds.rules.formats import SUBDOMAIN, address, family
from apiserver_stub.kinds.rules.metadata import TEMPLATE
from apiserver_stub.kinds.rules.pod_spec import pod_spec
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in, same_but
from controller_manager.common.api.pod_resources import is_sidecar, quality_of_service
from controller_manager.common.api.tree import Tree

# Updates of a pod: through the main resource, ephemeral containers, resize and status.

_LISTS = ("containers", "initContainers")
_RESIZED = ("cpu", "memory")
_NO_FIELD: FieldPath = (None, "[]")  # Kubernetes' text for a path without a name
_ONLY_RESIZED = "a resize may change cpu and memory only"
_MAY_CHANGE = frozenset({
    "activeDeadlineSeconds", "containers", "initContainers", "schedulingGates", "terminationGracePeriodSeconds",
    "tolerations",
})  # fmt: skip
_GATED_MAY_CHANGE = frozenset({"affinity", "nodeSelector"})
_FROZEN = (
    "pod updates may not change fields other than the images of containers, `activeDeadlineSeconds`, "
    "`tolerations` (by adding some), and `terminationGracePeriodSeconds` (from below zero to 1)"
)


def change(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Validate an update through the main resource."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec is before or spec == before:
        return
    for name in _LISTS:
        if len(spec.get(name) or ()) != len(before.get(name) or ()):
            errors.forbidden((_SPEC, name), "pod updates may not add or remove containers")
            return
    if not _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"), errors):
        return
    _tolerations(spec.get("tolerations") or [], before.get("tolerations") or [], errors)
    _gates(spec.get("schedulingGates") or [], before.get("schedulingGates") or [], errors)
    gated = bool(before.get("schedulingGates"))
    if gated:
        _gated_scheduling(spec, before, errors)
    if not _same_otherwise(spec, before, gated):
        errors.forbidden(_SPEC, _FROZEN)


def _same_otherwise(new: Tree, old: Tree, gated: bool) -> bool:
    ignored = _MAY_CHANGE | _GATED_MAY_CHANGE if gated else _MAY_CHANGE
    grace, before = (spec.get("terminationGracePeriodSeconds") for spec in (new, old))
    hurried = grace == 1 and isinstance(before, int) and before < 0
    return (grace == before or hurried) and same_but(ignored, new, old) and _same_containers(new, old, ("image",))


def _same_containers(new: Tree, old: Tree, ignored: tuple[str, ...]) -> bool:
    pairs = (zip(new.get(name) or (), old.get(name) or (), strict=True) for name in _LISTS)
    return all(same_but(ignored, one, other) for pair in pairs for one, other in pair)


def _deadline(new: Any, old: Any, errors: ErrorList) -> bool:
    """Check that a deadline only decreases. Return whether to check the rest."""
    at = (_SPEC, "activeDeadlineSeconds")
    if new is None:
        if old is not None:
            errors.invalid(at, None, "may not be removed once set")
        return True
    if not 0 <= new <= GREATEST:
        errors.invalid(at, new, f"must be between 0 and {GREATEST}, inclusive")
        return False
    if old is not None and new > old:
        errors.invalid(at, new, "must be less than or equal to previous value")
        return False
    return True


def _tolerations(new: list[Any], old: list[Any], errors: ErrorList) -> None:
    if new != old and not _without_seconds(old) <= _without_seconds(new):
        why = "of a toleration that is there only tolerationSeconds may change"
        errors.forbidden((_SPEC, "tolerations"), why)


def _without_seconds(tolerations: list[Any]) -> set[frozenset[tuple[str, Any]]]:
    """Return the tolerations without `tolerationSeconds`."""
    return {
        frozenset((name, value) for name, value in one.items() if name != "tolerationSeconds") for one in tolerations
    }


def _gates(new: list[Any], old: list[Any], errors: ErrorList) -> None:
    known = {gate.get("name") for gate in old}
    for index, gate in enumerate(new):
        if gate.get("name") not in known:
            why = f"gates may only be taken away, and '{gate.get('name')}' is new"
            errors.forbidden((((_SPEC, "schedulingGates"), index), "name"), why)


def _gated_scheduling(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check that scheduling constraints of a gated Pod only become stricter: node selector labels are only added, and
    affinity other than node affinity stays.
    """
    wanted, before = new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if any(wanted.get(name) != value for name, value in before.items()):
        why = "labels may only be added"
        errors.invalid((_SPEC, "nodeSelector"), wanted, why)
    if not same_but(("nodeAffinity",), new.get("affinity") or {}, old.get("affinity") or {}):
        errors.forbidden(_SPEC, _FROZEN)


def change_ephemeral(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check that ephemeral containers are only added."""
    at = (_SPEC, "ephemeralContainers")
    if _MIRROR in (get_in(old, ("metadata", "annotations")) or {}):
        errors.forbidden(_NO_FIELD, "static pods do not support ephemeral containers")
    wanted = {c.get("name"): c for c in get_in(new, ("spec", "ephemeralContainers")) or ()}
    for container in get_in(old, ("spec", "ephemeralContainers")) or ():
        name = container.get("name")
        if name not in wanted:
            errors.forbidden(at, f'"{name}" is there already and may not be removed')
        elif wanted[name] != container:
            errors.forbidden(at, f'"{name}" is there already and may not be changed')


def resize(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Check that a resize only changes cpu and memory of a pod and its containers, and removes nothing."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if _MIRROR in (get_in(old, ("metadata", "annotations")) or {}):
        errors.forbidden(_NO_FIELD, "static pods cannot be resized")
        return
    if get_in(before, ("os", "name")) == "windows":
        errors.forbidden(_NO_FIELD, "windows pods cannot be resized")
        return
    if quality_of_service(spec) != (get_in(old, ("status", "qosClass")) or quality_of_service(before)):
        qos = get_in(new, ("status", "qosClass")) or ""
        errors.invalid(_SPEC, qos, "Pod QOS Class may not change as a result of resizing")
    if not _node_resizes(old):
        errors.forbidden(_SPEC, "the node of the pod does not support resizes")
    _resize_pod(spec.get("resources"), before.get("resources"), errors)
    if get_in(old, ("status", "nodeAllocatableResourceClaimStatuses")):
        errors.forbidden(_SPEC, "pods with node allocatable resource claims cannot be resized")
    if _same_order(spec, before, errors):
        for name in _LISTS:
            for index, (one, other) in enumerate(zip(spec.get(name) or (), before.get(name) or (), strict=True)):
                _resize_container(one, other, ((_SPEC, name), index), errors, is_init=name == "initContainers")


def _node_resizes(pod: Tree) -> bool:
    """Return whether the node supports resizes (KEP-1287): it reports the resources of the first running container. A
    pod without such a container may be resized.
    """
    statuses = get_in(pod, ("status", "containerStatuses")) or ()
    running = next((one for one in statuses if "running" in (one.get("state") or {})), None)
    return running is None or "resources" in running


def _resize_pod(new: Tree | None, old: Tree | None, errors: ErrorList) -> None:
    at = (_SPEC, "resources")
    if old is not None and new is None:
        if old.get("requests") or old.get("limits"):
            errors.forbidden(at, "resources of the pod cannot be removed")
        return
    _nothing_removed(new or {}, old or {}, at, errors)
    if not _same_but_resized(new or {}, old or {}):
        errors.forbidden(_SPEC, _ONLY_RESIZED)


def _same_order(new: Tree, old: Tree, errors: ErrorList) -> bool:
    """Check that the pod has the same containers in the same order. Return whether it has."""
    known = len(errors.causes)
    for name in _LISTS:
        containers, before = new.get(name) or (), old.get(name) or ()
        if len(containers) != len(before):
            errors.forbidden((_SPEC, name), "a resize may not add or remove containers")
            continue
        for index, (one, other) in enumerate(zip(containers, before, strict=True)):
            if one.get("name") != other.get("name"):
                errors.forbidden((((_SPEC, name), index), "name"), "a resize may not rename or reorder containers")
    return len(errors.causes) == known


def _resize_container(new: Tree, old: Tree, at: FieldPath, errors: ErrorList, *, is_init: bool) -> None:
    """Check the resize of a container."""
    where = at if is_init else _SPEC
    resources, before = new.get("resources") or {}, old.get("resources") or {}
    _nothing_removed(resources, before, (at, "resources"), errors)
    if not same_but(("resources",), new, old) or not _same_but_resized(resources, before):
        errors.forbidden(where, _ONLY_RESIZED)
    if is_init and new != old and not is_sidecar(old):
        for policy in new.get("resizePolicy") or ():
            if policy.get("restartPolicy") == "RestartContainer":
                errors.forbidden(where, "init containers that a resize would restart cannot be resized")


def _nothing_removed(new: Tree, old: Tree, at: FieldPath, errors: ErrorList) -> None:
    for kind in ("requests", "limits"):
        if (old.get(kind) or {}).keys() - (new.get(kind) or {}).keys():
            errors.forbidden((at, kind), f"resource {kind} cannot be removed")


def _same_but_resized(new: Tree, old: Tree) -> bool:
    """Return whether resources differ only in amounts of cpu and memory. Claims cannot be kept."""
    if old.get("claims"):
        return False
    return all(same_but(_RESIZED, new.get(kind) or {}, old.get(kind) or {}) for kind in ("requests", "limits"))


_STATUS: FieldPath = (None, "status")
_FAMILIES = 2
_SYSTEM_CONDITIONS = frozenset({"PodScheduled", "Ready", "Initialized"})


def change_status(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Validate an update through the status subresource."""
    status, before = new.get("status") or {}, old.get("status") or {}
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName"):
        _nominated(nominated, bool(get_in(old, ("spec", "nodeName"))), errors)
    if status.get("observedGeneration", 0) < 0:
        errors.invalid((_STATUS, "observedGeneration"), status["observedGeneration"], "must not be negative")
    if before.get("qosClass") and status.get("qosClass") != before["qosClass"]:
        errors.invalid((_STATUS, "qosClass"), status.get("qosClass", ""), IMMUTABLE)
    _of_host(status, errors)
    _ENDS({name: value for name, value in status.items() if value != before.get(name)}, _STATUS, errors)
    spec = old.get("spec") or {}
    change_container_statuses(status, before, spec, errors)
    _claims(status, spec, errors)
    _extended_claim(status, spec, errors)


def _nominated(node: str, is_bound: bool, errors: ErrorList) -> None:
    """Check a newly nominated node."""
    at = (_STATUS, "nominatedNodeName")
    if why := names.subdomain(node):
        errors.malformed(at, node, why)
    if is_bound:
        errors.forbidden(at, "may not be set for a pod that is bound to a node")


def _addresses(entries: Any, at: FieldPath, errors: ErrorList) -> None:
    texts = [entry.get("ip", "") for entry in entries]
    for index, text in enumerate(texts):
        if why := address(text):
            errors.invalid((at, index), text, why)
    families = {family(text) for text in texts}
    if len(texts) > 1 and "" in families:
        errors.internal(at, "the families of the addresses cannot be determined")
    if len(texts) > 1 and (len(families - {""}) < _FAMILIES or len(texts) > _FAMILIES):
        errors.invalid(at, texts, "may have no more than one address of each family")


def _of_host(status: Tree, errors: ErrorList) -> None:
    entries = status.get("hostIPs")
    if entries and entries[0].get("ip", "") != status.get("hostIP", ""):
        at = (((_STATUS, "hostIPs"), 0), "ip")
        errors.invalid(at, entries[0].get("ip", ""), "must be equal to `hostIP`")


def _conditions(conditions: Any, at: FieldPath, errors: ErrorList) -> None:
    for index, condition in enumerate(conditions):
        name, generation = condition.get("type", ""), condition.get("observedGeneration", 0)
        if generation < 0:
            errors.invalid(((at, index), "observedGeneration"), generation, "must not be negative")
        if name not in _SYSTEM_CONDITIONS and (why := names.qualified(name)):
            errors.malformed(((at, index), "Type"), name, why)


_ENDS = record({"podIPs": _addresses, "hostIPs": _addresses, "conditions": _conditions})


def _claims(status: Tree, spec: Tree, errors: ErrorList) -> None:
    known = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    seen = set()
    for index, entry in enumerate(status.get("resourceClaimStatuses") or ()):
        at, name = ((_STATUS, "resourceClaimStatuses"), index), entry.get("name", "")
        if name not in known:
            errors.invalid((at, "name"), name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            errors.duplicate((at, "name"), name)
        seen.add(name)
        if "resourceClaimName" in entry:
            SUBDOMAIN(entry["resourceClaimName"], (at, "resourceClaimName"), errors)


def _extended_claim(status: Tree, spec: Tree, errors: ErrorList) -> None:
    """Check the status of the claim for extended resources (KEP-5004)."""
    claim_status, at = status.get("extendedResourceClaimStatus"), (_STATUS, "extendedResourceClaimStatus")
    if claim_status is None:
        return
    asked = {one.get("name"): one for field in ("initContainers", "containers") for one in spec.get(field) or ()}
    mappings, seen = claim_status.get("requestMappings") or [], set()
    if not mappings:
        errors.required((at, "requestMappings"), "at least one request mapping is required")
    for index, mapping in enumerate(mappings):
        where = (at, "requestMappings"), index
        container, resource, request = (mapping.get(name) or "" for name in _MAPPING)
        if container not in asked:
            why = f"must match the name of an entry in {_CONTAINER_NAMES}"
            errors.invalid((where, "containerName"), container, why)
        elif resource not in (get_in(asked[container], ("resources", "requests")) or {}):
            why = f"must match the extended resource name of an entry in {_CONTAINER_REQUESTS}"
            errors.invalid((where, "resourceName"), resource, why)
        if why := names.label(request):
            errors.malformed((at, "requestName"), request, why)
        if (container, resource, request) in seen:
            for name in _MAPPING:
                errors.duplicate((where, name), mapping.get(name) or "")
        seen.add((container, resource, request))
    claim = claim_status.get("resourceClaimName") or ""
    if not claim:
        errors.required((at, "resourceClaimName"))
    elif why := names.subdomain(claim):
        errors.malformed((at, "resourceClaimName"), claim, why)


_MAPPING = ("containerName", "resourceName", "requestName")
_CONTAINER_NAMES = "spec.initContainers.name or spec.containers.name"
_CONTAINER_REQUESTS = "spec.initContainers.resources.requests or spec.containers.resources.requests"


# Pods and pod templates.

_SPEC: FieldPath = (None, "spec")
_COST = "controller.kubernetes.io/pod-deletion-cost"
_LATER = "cannot be set on create"
_MIRROR = "kubernetes.io/config.mirror"
_ANNOTATIONS = place("metadata.annotations")


def _pod(pod: Any, _at: FieldPath, errors: ErrorList) -> None:
    spec = pod.get("spec")
    if spec is None:
        errors.required(_SPEC)
        return
    _ephemeral_claims((pod.get("metadata") or {}).get("name") or "", spec.get("volumes") or (), errors)
    annotations = (pod.get("metadata") or {}).get("annotations")
    if annotations:
        _annotations(annotations, spec, errors)


def _ephemeral_claims(name: str, volumes: Iterable[Tree], errors: ErrorList) -> None:
    """Check the names of the claims generated for ephemeral volumes. No other volume may use them."""
    made = {f"{name}-{volume['name']}" for volume in volumes if "ephemeral" in volume and volume.get("name")}
    if not made or not name:
        return
    for index, volume in enumerate(volumes):
        at, claim = ((_SPEC, "volumes"), index), f"{name}-{volume.get('name', '')}"
        if "ephemeral" in volume and claim in made:
            for why in names.subdomain(claim).splitlines():
                errors.invalid((at, "name"), volume["name"], f"the claim {claim} would have no valid name: {why}")
        if get_in(volume, ("persistentVolumeClaim", "claimName")) in made:
            errors.invalid(
                ((at, "persistentVolumeClaim"), "claimName"),
                volume["persistentVolumeClaim"]["claimName"],
                "must not be a claim that is made for an ephemeral volume",
            )


def _spec_of_pod(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    pod_spec(spec, at, errors)
    for index, volume in enumerate(spec.get("volumes") or ()):
        if volume.keys() <= {"name", "image"} and "image" in volume and not volume["image"].get("reference"):
            errors.required(((((at, "volumes"), index), "image"), "reference"))
    for name in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(name) or ()):
            image = container.get("image", "")
            if image != image.strip():
                why = "must not have leading or trailing whitespace"
                errors.invalid((((at, name), index), "image"), image, why)


def _annotations(annotations: Mapping[str, str], spec: Tree, errors: ErrorList) -> None:
    cost = annotations.get(_COST, "0")
    digits = cost.removeprefix("-")
    if not (cost.isascii() and digits.isdigit() and len(digits) < 11 and -(2**31) <= int(cost) < 2**31):
        errors.invalid((_ANNOTATIONS, key(_COST)), cost, "must be a 32bit integer")
    if _MIRROR in annotations and not spec.get("nodeName"):
        why = "needs spec.nodeName"
        errors.invalid((_ANNOTATIONS, key(_MIRROR)), annotations[_MIRROR], why)


def _new(pod: Any, _at: FieldPath, errors: ErrorList) -> None:
    """Check that a new Pod has no ephemeral containers and, if it is gated, no node."""
    spec = pod.get("spec") or {}
    never("ephemeralContainers", why=_LATER)(spec, _SPEC, errors)
    if spec.get("schedulingGates"):
        never("nodeName", why="cannot be set while there are schedulingGates")(spec, _SPEC, errors)


def pod_template(*policies: str, claimed: Iterable[str] = ()) -> ValueRule:
    """Return a rule for a pod template with one of the given restart policies, or any if none is given."""

    def rule(template: Any, at: FieldPath, errors: ErrorList) -> None:
        if "metadata" in template:
            TEMPLATE(template["metadata"], at, errors)
        spec, here = template.get("spec"), (at, "spec")
        if spec is None:
            errors.required((here, "containers"))
            return
        pod_spec(spec, here, errors, claimed)
        policy = spec.get("restartPolicy")
        if policies and policy == "Always" and policy not in policies:
            errors.required((here, "restartPolicy"), f"must be one of {', '.join(policies)}")
        elif policies and policy and policy not in policies:
            errors.unsupported((here, "restartPolicy"), policy, policies)
        if spec.get("ephemeralContainers"):
            errors.forbidden((here, "ephemeralContainers"), "ephemeral containers not allowed in pod template")

    return rule


def _stored_template(tree: Any, _at: FieldPath, errors: ErrorList) -> None:
    pod_template()(tree.get("template") or {}, (None, "template"), errors)


_PARTS: Mapping[str, ChangeRule] = MappingProxyType({
    "status": change_status, "ephemeralcontainers": change_ephemeral, "resize": resize,
})  # fmt: skip
RULES = {
    "v1/Pod": KindRules(_pod, change, _PARTS, on_create=_new, spec=_spec_of_pod),
    "v1/PodTemplate": KindRules(_stored_template),
}
