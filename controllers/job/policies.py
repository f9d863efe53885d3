"""The policies of a job: what a failed pod means (KEP-3329), and which indexes are enough (KEP-3998); pure.

action      the failure counts      and
Ignore      no
Count       yes
FailIndex   yes                     its index has failed, however often it may still be tried
FailJob     yes                     the job has failed
(no rule)   yes

The first rule that matches decides. Exit codes are those of containers, then of init containers; 0 never matches.
"""

from collections.abc import Iterable
from typing import NamedTuple

from controller_manager.common.api.batch import ExitCodes, PodFailurePolicy, PodFailureRule, SuccessPolicy, SuccessRule
from controller_manager.common.api.core import ContainerStatus, Pod
from controller_manager.common.api.resource import key_of

from .indexes import Indexes

IGNORE, COUNT, FAIL_INDEX, FAIL_JOB = "Ignore", "Count", "FailIndex", "FailJob"
_ACTIONS = (IGNORE, COUNT, FAIL_INDEX, FAIL_JOB)


class FailureAction(NamedTuple):
    """The meaning of a failed pod: the action of its rule, empty without one, and why it matched, in words."""

    action: str = ""
    why: str = ""

    @property
    def counts(self) -> bool:
        """Return whether the failure counts towards the limits of the job."""
        return self.action != IGNORE


_UNRULED = FailureAction()


def verdict_on(policy: PodFailurePolicy | None, pod: Pod) -> FailureAction:
    """Return what a policy says of a failed pod."""
    for place, rule in enumerate(policy.rules if policy is not None else ()):
        why = _match(rule, pod)
        if why and rule.action in _ACTIONS:
            return FailureAction(rule.action, f"{why}; so says the {rule.action} rule at index {place}")
    return _UNRULED


def _match(rule: PodFailureRule, pod: Pod) -> str:
    """Return in words how a pod matches a rule; empty if it does not."""
    if rule.on_exit_codes is not None:
        found = _ended_with(pod.status.container_statuses, rule.on_exit_codes)
        found = found or _ended_with(pod.status.init_container_statuses, rule.on_exit_codes)
        return f"Container {found[0]} of pod {key_of(pod)} ended with exit code {found[1]}" if found else ""
    patterns = {(one.type, one.status) for one in rule.on_pod_conditions}
    kind = next((one.type for one in pod.status.conditions if (one.type, one.status) in patterns), "")
    return f"Pod {key_of(pod)} has the condition {kind}" if kind else ""


def _ended_with(statuses: Iterable[ContainerStatus], wanted: ExitCodes) -> tuple[str, int] | None:
    """Return the name and the exit code of the first container that ended as is wanted."""
    for one in statuses:
        ended = one.state.terminated
        if ended is None or ended.exit_code == 0 or wanted.container_name not in (None, one.name):
            continue
        listed = ended.exit_code in wanted.values
        if (wanted.operator == "In" and listed) or (wanted.operator == "NotIn" and not listed):
            return one.name, ended.exit_code
    return None


def success_by(policy: SuccessPolicy | None, completions: int, succeeded: Indexes) -> str:
    """Return in words which rule is met by the indexes that have succeeded; empty if none is."""
    if policy is None or not succeeded.ranges:
        return ""
    met = (place for place, rule in enumerate(policy.rules) if _is_met(rule, completions, succeeded))
    place = next(met, None)
    return "" if place is None else f"The rule at index {place} is met"


def _is_met(rule: SuccessRule, completions: int, succeeded: Indexes) -> bool:
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and len(succeeded) >= rule.succeeded_count
    wanted = Indexes.parse(rule.succeeded_indexes, completions)
    found = len(wanted & succeeded)
    enough = rule.succeeded_count is not None and found >= rule.succeeded_count
    return bool(wanted.ranges) and (found == len(wanted) or enough)
