"""The fields of a Pod that the server sets: status, quality of service, AppArmor profiles, grace period, binding, and
what subresources write.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from apiserver_stub.kinds.values.trees import dicts, get_in, put_in
from controller_manager.common.api.errors import Cause
from controller_manager.common.api.pod_resources import quality_of_service
from controller_manager.common.api.tree import Tree

_USUAL_GRACE = 30
_ENDED = frozenset({"Succeeded", "Failed"})
_GENERATION = "observedGeneration"
_LISTS = ("containers", "initContainers")


def pod_on_create(pod: Tree) -> None:
    """Set the initial status of a new pod and the fields derived from others."""
    sync_app_armor(pod)
    spec = pod.get("spec", {})
    merge_label_keys(spec, pod.get("metadata", {}).get("labels") or {})
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        pod["status"]["conditions"] = [gated | {"message": "Scheduling is blocked due to non-empty scheduling gates"}]


_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LABEL_KEYS = (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))


def merge_label_keys(spec: Tree, labels: Tree) -> None:
    """Add the pod's label values for `matchLabelKeys` and `mismatchLabelKeys` to the selectors of its affinity terms
    and spread constraints (KEP-3633, KEP-3243). Keys without a label on the pod are skipped.
    """
    for term in (*_affinity_terms(spec.get("affinity") or {}), *(spec.get("topologySpreadConstraints") or ())):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        added = [
            {"key": name, "operator": operator, "values": [labels[name]]}
            for field, operator in _LABEL_KEYS
            for name in term.get(field) or ()
            if name in labels
        ]
        if added:
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *added]


def _affinity_terms(affinity: Tree) -> Iterator[Tree]:
    """Yield the pod affinity and anti-affinity terms."""
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        yield from rules.get(_REQUIRED) or ()
        for weighted in rules.get(_PREFERRED) or ():
            yield weighted.get("podAffinityTerm") or {}


def pod_on_update(new: Tree, old: Tree, _part: str) -> None:
    """Keep the quality of service class, and the observed generations if the client does not send them."""
    status, before = new.get("status") or {}, old.get("status") or {}
    if status is before or status == before:
        return
    if not status.get("qosClass"):
        put_in(new, ("status", "qosClass"), before.get("qosClass"))
    if not status.get(_GENERATION):
        put_in(new, ("status", _GENERATION), before.get(_GENERATION))
    if any(_GENERATION in condition for _, condition in dicts(before.get("conditions"))):
        put_in(new, ("status", "conditions"), _with_generations(status.get("conditions"), before["conditions"]))


def _with_generations(conditions: Any, before: Any) -> list[Tree]:
    known: dict[Any, list[int]] = defaultdict(list)
    for _, condition in dicts(before):
        known[condition.get("type")].append(condition.get(_GENERATION, 0))
    found = []
    for _, condition in dicts(conditions):
        seen = known[condition.get("type")]
        generation = seen.pop(0) if seen else 0
        found.append({_GENERATION: generation, **condition} if generation else condition)
    return found


def pod_grace_period(pod: Tree, requested: int | None) -> int:
    """Return the grace period in seconds. It is 0 for a Pod that is finished or not bound to a node."""
    if not get_in(pod, ("spec", "nodeName")) or get_in(pod, ("status", "phase")) in _ENDED:
        return 0
    asked = get_in(pod, ("spec", "terminationGracePeriodSeconds")) if requested is None else requested
    return _USUAL_GRACE if asked is None else 1 if asked < 0 else asked


def resized(new: Tree, old: Tree) -> Tree:
    """Return the old spec with the resources of the new one. If the container names differ, the new containers are
    used.
    """
    wanted, spec = new.get("spec") or {}, dict(old.get("spec") or {})
    for name in _LISTS:
        if name in spec or name in wanted:
            spec[name] = _resized_containers(wanted.get(name) or [], spec.get(name) or [])
    put_in(spec, ("resources",), wanted.get("resources"))
    return spec


def with_ephemeral(new: Tree, old: Tree) -> Tree:
    """Return the old spec with the ephemeral containers of the new one."""
    spec = dict(old.get("spec") or {})
    put_in(spec, ("ephemeralContainers",), get_in(new, ("spec", "ephemeralContainers")))
    return spec


def _resized_containers(wanted: list[Tree], containers: list[Tree]) -> list[Tree]:
    if _names(wanted) != _names(containers):
        return wanted
    found = []
    for container, asked in zip(containers, wanted, strict=True):
        changed = dict(container)
        for field in ("resources", "resizePolicy"):
            put_in(changed, (field,), asked.get(field))
        found.append(changed)
    return found


def _names(containers: Any) -> list[Any]:
    return [container.get("name") for _, container in dicts(containers)]


_SCHEDULED = "PodScheduled"
_TARGETS = ("", "Node")


def check_binding(binding: Tree) -> Iterator[Cause]:
    """Yield the errors of a Binding."""
    target = binding.get("target") or {}
    if target.get("kind", "") not in _TARGETS:
        message = f'Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        yield Cause(reason="FieldValueNotSupported", message=message, field="target.kind")
    if not target.get("name"):
        yield Cause(reason="FieldValueRequired", message="Required value", field="target.name")


def hindrance(pod: Tree) -> str:
    """Return the reason why a Pod cannot be bound now. Empty if it can."""
    name, node = pod["metadata"]["name"], get_in(pod, ("spec", "nodeName"))
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node:
        return f'pod {name} is already assigned to node "{node}"'
    if get_in(pod, ("spec", "schedulingGates")):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def bind_pod(pod: Tree, binding: Tree, now: str) -> None:
    """Bind a Pod to the target node, in place."""
    put_in(pod, ("spec", "nodeName"), binding["target"]["name"])
    put_in(pod, ("status", "nominatedNodeName"), None)
    for name in ("annotations", "labels"):
        given = binding["metadata"].get(name)
        if given:
            put_in(pod, ("metadata", name), {**pod["metadata"].get(name, {}), **given})
    _set_condition(pod, {"type": _SCHEDULED, "status": "True"}, now)


def mark_evicted(pod: Tree, now: str) -> None:
    """Add the condition DisruptionTarget of an evicted Pod (KEP-3329), in place."""
    reason = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    _set_condition(pod, {"type": "DisruptionTarget", "status": "True", **reason}, now)


def _set_condition(pod: Tree, condition: Tree, now: str) -> None:
    """Replace the condition of the same type or append it. The transition time is kept if the status is the same."""
    conditions = [known for _, known in dicts(get_in(pod, ("status", "conditions")))]
    at = next((n for n, known in enumerate(conditions) if known.get("type") == condition["type"]), len(conditions))
    before = conditions[at] if at < len(conditions) else {}
    since = before.get("lastTransitionTime") if before.get("status") == condition["status"] else now
    conditions[at : at + 1] = [{**condition, "lastProbeTime": None, "lastTransitionTime": since}]
    put_in(pod, ("status", "conditions"), conditions)


ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_ALL_LISTS = ("initContainers", "containers", "ephemeralContainers")
_LONGEST = 4095


def profile_of(annotation: str) -> Tree | None:
    """Return the AppArmor profile that an annotation means. None if it is invalid."""
    if annotation == "unconfined":
        return {"type": "Unconfined"}
    if annotation == "runtime/default":
        return {"type": "RuntimeDefault"}
    name = annotation.removeprefix(_LOCALHOST).strip()
    if annotation.startswith(_LOCALHOST) and 0 < len(name) <= _LONGEST and name == annotation[len(_LOCALHOST) :]:
        return {"type": "Localhost", "localhostProfile": name}
    return None


def sync_app_armor(pod: Tree) -> None:
    """Copy AppArmor profiles from annotations to the containers of a new pod if they differ from the pod's profile."""
    annotations = pod.get("metadata", {}).get("annotations") or {}
    spec = pod.get("spec") or {}
    if ANNOTATION not in "\n".join(annotations):
        return
    if (spec.get("os") or {}).get("name") == "windows":
        return
    whole = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container in (container for field in _ALL_LISTS for container in spec.get(field) or ()):
        profile = profile_of(annotations.get(ANNOTATION + container.get("name", ""), ""))
        context = container.get("securityContext") or {}
        if profile is not None and profile != whole and "appArmorProfile" not in context:
            container["securityContext"] = {**context, "appArmorProfile": profile}
