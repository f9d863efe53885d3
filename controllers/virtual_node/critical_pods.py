"""Selects the pods that a node preempts for a critical pod, as the kubelet does; pure.

Only less important pods are preempted: best-effort before burstable before guaranteed ones. Within a class the pod
that leaves the least shortage comes next, and of equal ones the smaller.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from controller_manager.common.api.core import Pod
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model

from ..scheduler.requirements import Requirements

CRITICAL = 2_000_000_000
"""The minimum priority of critical pods, such as those of system-cluster-critical."""
_CLASSES = ("Guaranteed", "Burstable", "BestEffort")


class _Status(Model):
    qos_class: str = ""


class _Classified(Model):
    status: _Status = _Status()


_CLASSIFIED = Decoder(_Classified)


class Occupant(NamedTuple):
    """A pod that a node has admitted."""

    pod: Pod
    requirements: Requirements

    @property
    def qos(self) -> str:
        """Return its QoS class."""
        return _CLASSIFIED.decode(self.pod.raw).status.qos_class

    def has(self, resource: str) -> int:
        """Return its request of a resource."""
        requests = self.requirements.requests
        match resource:
            case "pods":
                return 1
            case "cpu":
                return requests.cpu
            case "memory":
                return requests.memory
            case "ephemeral-storage":
                return requests.storage
        return requests.others.get(resource, 0)


def victims_for(
    asked: Requirements, lacking: Mapping[str, int], there: Iterable[Occupant]
) -> Sequence[Occupant] | None:
    """Return the pods to preempt for a pod with that shortage, or None if it cannot be met."""
    less = [one for one in there if _gives_way(asked.priority, one.requirements.priority)]
    by_class = {name: [one for one in less if one.qos == name] for name in _CLASSES}
    if _remaining(lacking, less):
        return None
    chosen: list[Occupant] = []
    for place, name in enumerate(_CLASSES):
        weaker = [one for other in _CLASSES[place + 1 :] for one in by_class[other]]
        chosen += _closest(by_class[name], _remaining(lacking, [*weaker, *chosen]))
    return chosen


def _gives_way(priority: int, other: int) -> bool:
    return (priority >= CRITICAL > other) or priority > other


def _remaining(lacking: Mapping[str, int], freed: Sequence[Occupant]) -> dict[str, int]:
    """Return the shortage that remains without some pods."""
    left = {name: amount - sum(one.has(name) for one in freed) for name, amount in lacking.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _closest(pods: Sequence[Occupant], lacking: dict[str, int]) -> list[Occupant]:
    """Return few pods that free the shortage, chosen greedily."""
    left, chosen = list(pods), []
    while lacking:
        best = min(left, key=lambda one: (_distance(one, lacking), one.has("memory"), one.has("cpu")))
        left.remove(best)
        chosen.append(best)
        lacking = _remaining(lacking, [best])
    return chosen


def _distance(one: Occupant, lacking: Mapping[str, int]) -> float:
    return sum((max(0, amount - one.has(name)) / amount) ** 2 for name, amount in lacking.items())
