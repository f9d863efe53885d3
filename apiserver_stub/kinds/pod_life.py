"""What the server owns of a Pod: its first status, its quality of service, its grace, and what its parts may change."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts, get_in, put_in
from controller_manager.api.errors import Cause

_USUAL_GRACE = 30
_ENDED = frozenset({"Succeeded", "Failed"})
_MIRROR = "kubernetes.io/config.mirror"
_GENERATION = "observedGeneration"
_RESIZED = frozenset({"cpu", "memory"})
_LISTS = ("containers", "initContainers")


def pod_born(pod: Tree) -> None:
    """A new Pod waits; why, where its spec says so."""
    spec = pod.get("spec", {})
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        pod["status"]["conditions"] = [gated | {"message": "Scheduling is blocked due to non-empty scheduling gates"}]


def quality_of_service(spec: Tree) -> str:
    """The class of a Pod: Guaranteed when each container limits what it requests, BestEffort when none asks."""
    asks = [c.get("resources", {}) for key in ("initContainers", "containers") for _, c in dicts(spec.get(key))]
    wanted = [(a.get("requests", {}).get(k), a.get("limits", {}).get(k)) for a in asks for k in ("cpu", "memory")]
    if not any(request or limit for request, limit in wanted):
        return "BestEffort"
    return "Guaranteed" if all(limit and request in (None, limit) for request, limit in wanted) else "Burstable"


def pod_changed(new: Tree, old: Tree, _part: str) -> None:
    """Keep what was decided once, and what clients that do not know of generations leave out."""
    status, before = new.get("status") or {}, old.get("status") or {}
    if status == before:
        return
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


def pod_patience(pod: Tree, requested: int | None) -> int:
    """A Pod on a node is given the time asked for; one that nobody runs goes at once."""
    if not get_in(pod, ("spec", "nodeName")) or get_in(pod, ("status", "phase")) in _ENDED:
        return 0
    asked = get_in(pod, ("spec", "terminationGracePeriodSeconds")) if requested is None else requested
    return _USUAL_GRACE if asked is None else 1 if asked < 0 else asked


def resized(new: Tree, old: Tree) -> Tree:
    """The old spec with the resources of the new one; where their containers differ, with the new containers."""
    wanted, spec = new.get("spec") or {}, dict(old.get("spec") or {})
    for name in _LISTS:
        if name in spec or name in wanted:
            spec[name] = _resized(wanted.get(name) or [], spec.get(name) or [])
    return spec


def _resized(wanted: list[Tree], containers: list[Tree]) -> list[Tree]:
    if _names(wanted) != _names(containers):
        return wanted
    found = []
    for container, asked in zip(containers, wanted, strict=True):
        changed = dict(container)
        for field in ("resources", "resizePolicy"):
            put_in(changed, (field,), asked.get(field))
        found.append(changed)
    return found


def check_resize(new: Tree, old: Tree) -> Iterator[Cause]:
    """All problems of a resize (KEP-1287)."""
    spec, before = new.get("spec", {}), old.get("spec", {})
    if _MIRROR in (old["metadata"].get("annotations") or {}):
        yield _forbidden("metadata", "static pods cannot be resized")
    if get_in(spec, ("os", "name")) == "windows":
        yield _forbidden("spec", "windows pods cannot be resized")
    for name in _LISTS:
        if _names(spec.get(name)) != _names(before.get(name)):
            yield _forbidden(f"spec.{name}", f"{name} may not be added, removed, renamed or reordered on resize")
            return
        for i, container in dicts(spec.get(name)):
            sidecar = name == "containers" or container.get("restartPolicy") == "Always"
            yield from _check_resources(container, before[name][i], f"spec.{name}[{i}].resources", sidecar)
    quality = quality_of_service(spec)
    if quality != quality_of_service(before):
        message = f'Invalid value: "{quality}": Pod QOS Class may not change as a result of resizing'
        yield Cause(reason="FieldValueInvalid", message=message, field="spec")


def _check_resources(container: Tree, before: Tree, field: str, may: bool) -> Iterator[Cause]:
    wanted, had = container.get("resources") or {}, before.get("resources") or {}
    if wanted == had:
        return
    if not may:
        yield _forbidden(field, "resources for non-sidecar init containers are immutable")
        return
    for side in ("limits", "requests"):
        asked, given = wanted.get(side) or {}, had.get(side) or {}
        gone = _RESIZED & (given.keys() - asked.keys())
        if gone:
            yield _forbidden(f"{field}.{side}", f"resource {side} cannot be removed")
        if _others(asked) != _others(given):
            yield _forbidden(f"{field}.{side}", "only cpu and memory resources are mutable")
    if wanted.get("claims") != had.get("claims"):
        yield _forbidden(f"{field}.claims", "only cpu and memory resources are mutable")


def _others(resources: Tree) -> Tree:
    return {name: value for name, value in resources.items() if name not in _RESIZED}


def check_added(new: Tree, old: Tree) -> Iterator[Cause]:
    """All problems of adding ephemeral containers: those that are there stay as they are."""
    field = "spec.ephemeralContainers"
    if _MIRROR in (old["metadata"].get("annotations") or {}):
        yield _forbidden(field, "static pods do not support ephemeral containers")
    after = {c.get("name"): (i, c) for i, c in dicts(get_in(new, ("spec", "ephemeralContainers")))}
    for _, container in dicts(get_in(old, ("spec", "ephemeralContainers"))):
        name = container.get("name")
        if name not in after:
            yield _forbidden(field, f'existing ephemeral containers "{name}" may not be removed')
        elif after[name][1] != container:
            yield _forbidden(f"{field}[{after[name][0]}]", f'existing ephemeral containers "{name}" may not be changed')


def _names(containers: Any) -> list[Any]:
    return [container.get("name") for _, container in dicts(containers)]


def _forbidden(field: str, why: str) -> Cause:
    return Cause(reason="FieldValueForbidden", message=f"Forbidden: {why}", field=field)
