"""What binding a Pod to a node asks and does; pure."""

from collections.abc import Iterator

from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts, get_in, put_in
from controller_manager.api.errors import Cause

_SCHEDULED = "PodScheduled"
_TARGETS = ("", "Node")


def check_binding(binding: Tree) -> Iterator[Cause]:
    """All problems of a Binding."""
    target = binding.get("target") or {}
    if target.get("kind", "") not in _TARGETS:
        message = f'Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        yield Cause(reason="FieldValueNotSupported", message=message, field="target.kind")
    if not target.get("name"):
        yield Cause(reason="FieldValueRequired", message="Required value", field="target.name")


def hindrance(pod: Tree) -> str:
    """Why a Pod can't be bound now; empty when it can."""
    name, node = pod["metadata"]["name"], get_in(pod, ("spec", "nodeName"))
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node:
        return f'pod {name} is already assigned to node "{node}"'
    if get_in(pod, ("spec", "schedulingGates")):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def bind_pod(pod: Tree, binding: Tree, now: str) -> None:
    """Bind a Pod, in place."""
    put_in(pod, ("spec", "nodeName"), binding["target"]["name"])
    put_in(pod, ("status", "nominatedNodeName"), None)
    for name in ("annotations", "labels"):
        given = binding["metadata"].get(name)
        if given:
            put_in(pod, ("metadata", name), {**pod["metadata"].get(name, {}), **given})
    known = [c for _, c in dicts(get_in(pod, ("status", "conditions"))) if c.get("type") != _SCHEDULED]
    scheduled = {"type": _SCHEDULED, "status": "True", "lastTransitionTime": now}
    put_in(pod, ("status", "conditions"), [*known, scheduled])
