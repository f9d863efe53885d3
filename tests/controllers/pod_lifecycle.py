"""Builders of pods on a virtual node, and a simulation of their lifecycle."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from controller_manager.common.api.timestamps import format_time
from controllers.virtual_node.lifecycle import Place, decide
from controllers.virtual_node.pods import POD
from controllers.virtual_node.stages import Stages, load_stages, stages_of

Tree = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
PLACE = Place(("198.18.0.2",), ("10.0.0.7",))
SHIPPED = load_stages("", instant=True)
NOTE = "virtual-node.x-k8s.io"


def at(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(START + seconds, UTC))


def container(name: str = "main", **more: Any) -> Tree:
    return {"name": name, "image": "example.org/app:1", **more}


def pod(*mains: Tree, annotations: Tree | None = None, owner: str = "", generation: int = 1, **spec: Any) -> Tree:
    owners = [{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o"}] if owner else []
    meta = {"name": "p", "namespace": "default", "uid": "u", "generation": generation, "ownerReferences": owners}
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0)}]
    return {
        "metadata": {**meta, "annotations": annotations or {}},
        "spec": {"nodeName": "n", "containers": list(mains) or [container()], **spec},
        "status": {"phase": "Pending", "conditions": conditions},
    }


def apply(tree: Tree, changes: Any) -> Tree:
    """Patch the status like a server."""
    changes = msgspec.json.decode(msgspec.json.encode(changes))
    by_type = {one["type"]: one for one in tree["status"].get("conditions", [])}
    for one in changes.pop("conditions", []):
        known = {**by_type.get(one["type"], {}), **one}
        by_type[one["type"]] = {key: value for key, value in known.items() if value is not None}
    return {**tree, "status": {**tree["status"], **changes, "conditions": list(by_type.values())}}


def state(status: Tree) -> str:
    if "running" in status["state"]:
        return "ready" if status["ready"] else "started" if status.get("started") else "running"
    if "terminated" in status["state"]:
        return f"exit {status['state']['terminated']['exitCode']}"
    return str(status["state"]["waiting"]["reason"])


def summary(tree: Tree) -> str:
    """Return the phase, and the containers with their states and restarts."""
    status = tree["status"]
    listed = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    listed += status.get("ephemeralContainerStatuses", [])
    states = [f"{one['name']} {state(one)}{'*' * min(one['restartCount'], 9)}" for one in listed]
    return ", ".join([status["phase"], *states])


def run_lifecycle(
    tree: Tree, stages: Stages = SHIPPED, begin: float = 0.0, until: float = 1000.0
) -> tuple[Tree, list[str]]:
    """Return the pod at the end of its lifecycle, and each change of its status with the second."""
    now, history = begin, []
    for _ in range(200):
        decision = decide(POD.decode(msgspec.json.encode(tree)), stages, PLACE, START + now)
        if decision.status:
            tree = apply(tree, decision.status)
            history.append(f"{now:g}: {summary(tree)}")
        if decision.removes:
            history.append(f"{now:g}: gone")
            break
        if decision.due - START > until:
            break
        assert decision.due > START + now
        now = decision.due - START
    return tree, history


def conditions(tree: Tree) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one.get("reason", "")) for one in tree["status"]["conditions"]}


def with_stages(*stages: Tree) -> Stages:
    return Stages([*stages_of({"stages": list(stages)}), *SHIPPED.listed])


INIT = container("init")
EXIT_1 = {f"{NOTE}/exit-code": "1", f"{NOTE}/run-for": "5s"}
SLOW = {"name": "slow", "from": ["waiting"], "to": "running", "delay": "3s"}


def annotated(tree: Tree, **annotations: str) -> Tree:
    notes = {f"{NOTE}/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {**tree, "metadata": {**tree["metadata"], "annotations": notes}}
