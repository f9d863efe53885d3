"""Who has to go so that a pod finds room: pods of lower priority on one node; pure.

On each node that pods keep from being the right one, all pods of lower priority are thought away. If that helps, they
are thought back as far as it goes on helping: first those whose budget of disruptions would be exceeded, then the
others, each from the most important one. Of the nodes where this leaves victims that one is taken which has

    the fewest victims that exceed a budget; whose most important victim is the least important; whose victims'
    priorities add up to the least; the fewest victims; whose most important victims started last
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
_NOBODY: Rejections = (Rejection(RESOURCES, "No preemption victims found for incoming pod"),)
# So many nodes are looked at for victims, or so many percent of those that may have some.
_LEAST_NODES, _PERCENT = 100, 10
_LOWEST = 1 << 31
# Looks that it takes to begin with a node, and to try without a pod and with it again.
_NODE, _POD = 0.5, 3.0


_Cost = tuple[int, int, int, int, tuple[int, ...]]


class PreemptionPlan(NamedTuple):
    """The pods that have to go from a node, of which so many exceed a budget of disruptions."""

    node: str
    victims: tuple[PlacedPod, ...]
    violations: int = 0


def make_room(decider: Decider, wanted: Wanted, why: NoFit, budgets: Iterable[PodDisruptionBudget]) -> "DryRun | str":
    """Return the search for who has to go for a pod for which there was no node, or why that would not help."""
    asked, state = wanted.requirements, decider.state
    if not asked.preempts:
        return NEVER
    if _is_waiting(wanted, why, decider):
        return IS_WAITING
    helpless = {name: any(one.final for one in every) for name, every in why.rejections.items()}
    reasons = {name: _HELPLESS if final else _NOBODY for name, final in helpless.items()}
    if not any(priority < asked.priority for priority in state.priorities):
        return NoFit(reasons).message
    return DryRun(decider, wanted, reasons, [name for name, final in helpless.items() if not final], budgets)


class DryRun:
    """The search for who has to go for a pod, among the nodes where that may help; it goes on where it made way.

    `reasons` is what is said of each node. A plan that was made before something changed is made again before it is
    taken, and goes if it is none any more.
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
        # By node: at which version of the cluster, what it costs, who has to go.
        self._plans: dict[str, tuple[int, _Cost, PreemptionPlan]] = {}
        self._without_violations = False
        self._version, self._relations = decider.state.version, decider.relations(wanted)
        self.began = self._version
        """The version of the cluster when it began."""

    def go_on(self, time: TimeSlice) -> PreemptionPlan | str | None:
        """Return who has to go, or in words why that would not help; None if the time is over before that is known."""
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
        """Return the best plan that is one still."""
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
    """A budget of disruptions, by what selects its pods; None selects none."""

    budget: PodDisruptionBudget
    selector: LabelSelector | None

    @classmethod
    def of(cls, budget: PodDisruptionBudget) -> Self:
        """Read a budget once for many pods."""
        try:
            selector = budget.spec.selector.selector() if budget.spec.selector is not None else None
        except KeyError:
            selector = None
        return cls(budget, None if selector is None or selector.empty else selector)

    def protects(self, placed: PlacedPod) -> bool:
        """Return whether a pod is one of those of the budget, and not counted as disrupted already."""
        asked, budget = placed.requirements, self.budget
        if self.selector is None or budget.metadata.namespace != asked.namespace or not asked.labels:
            return False
        return placed.pod.metadata.name not in budget.status.disrupted_pods and self.selector.matches(asked.labels)


def _is_lower(placed: PlacedPod, wanted: Wanted) -> bool:
    return placed.requirements.priority < wanted.requirements.priority


def select_victims(
    decider: Decider, wanted: Wanted, there: NodeInfo, relations: Relations, budgets: Sequence[_Protection]
) -> PreemptionPlan | Rejections:
    """Return who has to go from a node for a pod; or why that would not help, or that nobody may be asked to."""
    lower = sorted((one for one in there.pods.values() if _is_lower(one, wanted)), key=_importance)
    if not lower:
        return _NOBODY
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
        return PreemptionPlan(there.name, victims, sum(one.uid in away for one in violating)) if victims else _NOBODY
    finally:
        for one in away.values():
            relations.change(one, 1)


def _short(asked: Requirements, node: NodeInfo, lower: Sequence[PlacedPod]) -> Rejections:
    """Return what a node would lack for a pod even without those of lower priority.

    To tell costs a fraction of trying, and where more important pods fill a cluster nothing needs to be tried. A pod
    that asks for ports or for other resources has to be tried.
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
    """Return the pods whose going would exceed a budget if those before them go, and the others."""
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
    """Return whether a pod goes because a scheduler wanted it to."""
    if placed.doomed:
        return True
    found = condition_of(placed.pod.status.conditions, _DISRUPTED)
    return placed.is_leaving and found is not None and (found.status, found.reason) == ("True", REASON)


def _is_waiting(wanted: Wanted, why: NoFit, decider: Decider) -> bool:
    """Return whether room is being made for a pod already."""
    node = decider.state.nodes.get(wanted.nominated)
    if node is None or node.node is None or any(one.final for one in why.rejections.get(node.name, ())):
        return False
    priority = wanted.requirements.priority
    return any(one.requirements.priority < priority and is_on_its_way_out(one) for one in node.pods.values())


def _importance(placed: PlacedPod) -> tuple[int, str]:
    """Return what sorts pods from the most important one: by priority, then by who started first."""
    return -placed.requirements.priority, _started(placed)


def _started(placed: PlacedPod) -> str:
    return placed.pod.status.start_time or placed.pod.metadata.creation_timestamp or ""


def _cost(plan: PreemptionPlan) -> _Cost:
    """Return what sorts plans from the best one."""
    highest = plan.victims[0].requirements.priority
    total = sum(one.requirements.priority + _LOWEST + 1 for one in plan.victims)
    first = min(_started(one) for one in plan.victims if one.requirements.priority == highest)
    # Texts of times sort as they do; the latest goes first.
    return plan.violations, highest, total, len(plan.victims), tuple(-ord(letter) for letter in first)
