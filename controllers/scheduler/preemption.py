"""Selects the pods of lower priority on one node that have to be deleted for a pod; pure.

On each candidate node all pods of lower priority are removed hypothetically. If the pod then fits, as many as possible
are added again: first those whose disruption budget would be violated, then the others, each by descending priority.
The best node has, in this order,

the fewest budget violations; the lowest priority of its most important victim; the lowest sum of priorities;
the fewest victims; the latest start time of its most important victims
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.policy import PodDisruptionBudget
from controller_manager.common.api.selectors import LabelSelector

from .decide import Decider, NoFit, Relations, Wanted
from .filters import RESOURCES, Rejection, Rejections, insufficient
from .node_info import NodeInfo, PlacedPod
from .requirements import Requirements
from .time_slice import TimeSlice

REASON = "PreemptionByScheduler"
NEVER = "not eligible due to preemptionPolicy=Never."
IS_WAITING = "not eligible due to a terminating pod on the nominated node."
_DISRUPTED = "DisruptionTarget"
_HELPLESS: Rejections = (Rejection(RESOURCES, "Preemption is not helpful for scheduling"),)
_NO_VICTIMS: Rejections = (Rejection(RESOURCES, "No preemption victims found for incoming pod"),)
# Minimum number, and percentage, of candidate nodes that are examined.
_LEAST_NODES, _PERCENT = 100, 10
_LOWEST = 1 << 31
# Cost of examining a node, and of removing and adding a pod, in units of a filter check.
_NODE, _POD = 0.5, 3.0


_Cost = tuple[int, int, int, int, tuple[int, ...]]


class PreemptionPlan(NamedTuple):
    """The victims on a node, and the number of budget violations."""

    node: str
    victims: tuple[PlacedPod, ...]
    violations: int = 0


def make_room(decider: Decider, wanted: Wanted, why: NoFit, budgets: Iterable[PodDisruptionBudget]) -> "DryRun | str":
    """Return the search for victims for an unschedulable pod, or why preemption would not help."""
    asked, state = wanted.requirements, decider.state
    if not asked.preempts:
        return NEVER
    if _is_waiting(wanted, why, decider):
        return IS_WAITING
    helpless = {name: any(one.final for one in every) for name, every in why.rejections.items()}
    reasons = {name: _HELPLESS if final else _NO_VICTIMS for name, final in helpless.items()}
    if not any(priority < asked.priority for priority in state.priorities):
        return NoFit(reasons).message
    return DryRun(decider, wanted, reasons, [name for name, final in helpless.items() if not final], budgets)


class DryRun:
    """The search for victims over the candidate nodes, in time slices.

    `reasons` are messages by node. A plan made before a change is recomputed before it is used, and dropped if it is
    no longer possible.
    """

    def __init__(
        self,
        decider: Decider,
        wanted: Wanted,
        reasons: dict[str, Rejections],
        nodes: Sequence[str],
        budgets: Iterable[PodDisruptionBudget],
    ) -> None:
        self._decider = decider
        self._state = decider.state
        self._wanted = wanted
        self._reasons = reasons
        self._nodes = iter(nodes)
        self._most = max(_LEAST_NODES, len(nodes) * _PERCENT // 100)
        self._budgets = [_Protection.of(one) for one in budgets]
        # By node: the version of the cluster, the cost and the plan.
        self._plans: dict[str, tuple[int, _Cost, PreemptionPlan]] = {}
        self._without_violations = False
        self._version, self._relations = decider.state.version, decider.relations(wanted)
        self.began = self._version
        """The version of the cluster at the start."""

    def go_on(self, time: TimeSlice) -> PreemptionPlan | str | None:
        """Return the plan, or why preemption would not help; None if the time slice ends before that is known."""
        if self._version != self._state.version:
            self._version, self._relations = self._state.version, self._decider.relations(self._wanted)
        while len(self._plans) < self._most or not self._without_violations:
            if time.is_over:
                return None
            name = next(self._nodes, None)
            if name is None:
                break
            self._plan(name, time)
        return self._best(time)

    def _best(self, time: TimeSlice) -> PreemptionPlan | str | None:
        """Return the best plan that is still valid."""
        while self._plans:
            name = min(self._plans, key=lambda name: self._plans[name][1])
            version, _, plan = self._plans[name]
            if version == self._state.version:
                return plan
            if time.is_over:
                return None
            del self._plans[name]
            self._plan(name, time)
        return NoFit(self._reasons).message

    def _plan(self, name: str, time: TimeSlice) -> None:
        node = self._state.nodes.get(name)
        if node is None or node.node is None:
            self._reasons.pop(name, None)
            return
        time.spend(_NODE + _POD * sum(_is_lower(one, self._wanted) for one in node.pods.values()))
        found = select_victims(self._decider, self._wanted, node, self._relations, self._budgets)
        if isinstance(found, PreemptionPlan):
            self._plans[name] = self._state.version, _cost(found), found
            self._without_violations = self._without_violations or not found.violations
        else:
            self._reasons[name] = found


class _Protection(NamedTuple):
    """A disruption budget with its selector; None selects nothing."""

    budget: PodDisruptionBudget
    selector: LabelSelector | None

    @classmethod
    def of(cls, budget: PodDisruptionBudget) -> Self:
        """Parse a budget once for many pods."""
        try:
            selector = budget.spec.selector.selector() if budget.spec.selector is not None else None
        except KeyError:
            selector = None
        return cls(budget, None if selector is None or selector.empty else selector)

    def protects(self, placed: PlacedPod) -> bool:
        """Return whether the budget covers a pod that it does not count as disrupted yet."""
        asked, budget = placed.requirements, self.budget
        if self.selector is None or budget.metadata.namespace != asked.namespace or not asked.labels:
            return False
        return placed.pod.metadata.name not in budget.status.disrupted_pods and self.selector.matches(asked.labels)


def _is_lower(placed: PlacedPod, wanted: Wanted) -> bool:
    return placed.requirements.priority < wanted.requirements.priority


def select_victims(
    decider: Decider, wanted: Wanted, there: NodeInfo, relations: Relations, budgets: Sequence[_Protection]
) -> PreemptionPlan | Rejections:
    """Return the plan for a node, or why preemption would not help there."""
    lower = sorted((one for one in there.pods.values() if _is_lower(one, wanted)), key=_importance)
    if not lower:
        return _NO_VICTIMS
    short = _short(wanted.requirements, there, lower)
    if short:
        return short
    node, away = there.copy(), {one.uid: one for one in lower}
    for one in lower:
        node.remove(one)
        relations.change(one, -1)
    try:
        why = decider.rejections_at(wanted, node, relations)
        if why:
            return why
        violating, others = _beyond_budgets(lower, budgets)
        for one in [*violating, *others]:
            node.add(one)
            relations.change(one, 1)
            del away[one.uid]
            if not decider.fits(wanted, node, relations):
                node.remove(one)
                relations.change(one, -1)
                away[one.uid] = one
        victims = tuple(sorted(away.values(), key=_importance))
        if not victims:
            return _NO_VICTIMS
        return PreemptionPlan(there.name, victims, sum(one.uid in away for one in violating))
    finally:
        for one in away.values():
            relations.change(one, 1)


def _short(asked: Requirements, node: NodeInfo, lower: Sequence[PlacedPod]) -> Rejections:
    """Return what a node would lack for a pod even without pods of lower priority.

    This is cheaper than a trial. Pods with ports or other resources need a trial.
    """
    wanted, there = asked.requests, node.allocatable
    if asked.ports or wanted.others:
        return ()
    freed = [one.requirements.requests for one in lower]
    amounts = (
        ("cpu", wanted.cpu, there.cpu - node.cpu + sum(one.cpu for one in freed)),
        ("memory", wanted.memory, there.memory - node.memory + sum(one.memory for one in freed)),
        ("ephemeral-storage", wanted.storage, there.storage - node.storage + sum(one.storage for one in freed)),
    )
    return tuple(insufficient(name) for name, amount, left in amounts if amount and amount > left)


def _beyond_budgets(
    pods: Sequence[PlacedPod], budgets: Sequence[_Protection]
) -> tuple[list[PlacedPod], list[PlacedPod]]:
    """Return the pods whose deletion would violate a budget after those before them, and the others."""
    left = {one.budget.metadata.uid: one.budget.status.disruptions_allowed for one in budgets}
    violating: list[PlacedPod] = []
    others: list[PlacedPod] = []
    for pod in pods:
        exceeds = False
        for one in budgets:
            if one.protects(pod):
                left[one.budget.metadata.uid] -= 1
                exceeds = exceeds or left[one.budget.metadata.uid] < 0
        (violating if exceeds else others).append(pod)
    return violating, others


def is_on_its_way_out(placed: PlacedPod) -> bool:
    """Return whether a pod is being deleted because of preemption."""
    if placed.doomed:
        return True
    found = condition_of(placed.pod.status.conditions, _DISRUPTED)
    return placed.is_leaving and found is not None and (found.status, found.reason) == ("True", REASON)


def _is_waiting(wanted: Wanted, why: NoFit, decider: Decider) -> bool:
    """Return whether the pod's nominated node is already being freed."""
    node = decider.state.nodes.get(wanted.nominated)
    if node is None or node.node is None or any(one.final for one in why.rejections.get(node.name, ())):
        return False
    priority = wanted.requirements.priority
    return any(one.requirements.priority < priority and is_on_its_way_out(one) for one in node.pods.values())


def _importance(placed: PlacedPod) -> tuple[int, str]:
    """Return a sort key: highest priority first, then earliest start."""
    return -placed.requirements.priority, _started(placed)


def _started(placed: PlacedPod) -> str:
    return placed.pod.status.start_time or placed.pod.metadata.creation_timestamp or ""


def _cost(plan: PreemptionPlan) -> _Cost:
    """Return a sort key of plans, best first."""
    highest = plan.victims[0].requirements.priority
    total = sum(one.requirements.priority + _LOWEST + 1 for one in plan.victims)
    first = min(_started(one) for one in plan.victims if one.requirements.priority == highest)
    # RFC 3339 texts sort chronologically; the latest comes first.
    return plan.violations, highest, total, len(plan.victims), tuple(-ord(letter) for letter in first)
