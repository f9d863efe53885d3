"""The pod failure policy (KEP-3329) and the success policy (KEP-3998) of a job; pure.

action      counts as failure   effect
Ignore      no
Count       yes
FailIndex   yes                 the index fails without further retries
FailJob     yes                 the job fails
(no rule)   yes

The first matching rule decides. Exit codes of containers are checked before those of init containers. 0 never matches.
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
    """The action of the rule that a failed pod matches, empty without one, and how it matches."""

    action: str = ""
    message: str = ""

    @property
    def counts(self) -> bool:
        """Return whether the failure counts towards the limits of the job."""
        return self.action != IGNORE


_NO_RULE = FailureAction()


def verdict_on(policy: PodFailurePolicy | None, pod: Pod) -> FailureAction:
    """Return the action of a policy for a failed pod."""
    for index, rule in enumerate(policy.rules if policy is not None else ()):
        found = _match(rule, pod)
        if found and rule.action in _ACTIONS:
            return FailureAction(rule.action, f"{found} matching {rule.action} rule at index {index}")
    return _NO_RULE


def _match(rule: PodFailureRule, pod: Pod) -> str:
    """Return as text how a pod matches a rule, or an empty string."""
    if rule.on_exit_codes is not None:
        found = _ended_with(pod.status.container_statuses, rule.on_exit_codes)
        found = found or _ended_with(pod.status.init_container_statuses, rule.on_exit_codes)
        return f"Container {found[0]} for pod {key_of(pod)} failed with exit code {found[1]}" if found else ""
    patterns = {(one.type, one.status) for one in rule.on_pod_conditions}
    kind = next((one.type for one in pod.status.conditions if (one.type, one.status) in patterns), "")
    return f"Pod {key_of(pod)} has condition {kind}" if kind else ""


def _ended_with(statuses: Iterable[ContainerStatus], wanted: ExitCodes) -> tuple[str, int] | None:
    """Return the name and the exit code of the first container that matches."""
    for one in statuses:
        ended = one.state.terminated
        if ended is None or ended.exit_code == 0 or wanted.container_name not in (None, one.name):
            continue
        listed = ended.exit_code in wanted.values
        if (wanted.operator == "In" and listed) or (wanted.operator == "NotIn" and not listed):
            return one.name, ended.exit_code
    return None


def success_by(policy: SuccessPolicy | None, completions: int, succeeded: Indexes) -> str:
    """Return as text which rule is met by the succeeded indexes, or an empty string."""
    if policy is None or not succeeded.ranges:
        return ""
    met = (index for index, rule in enumerate(policy.rules) if _is_met(rule, completions, succeeded))
    index = next(met, None)
    return "" if index is None else f"Matched rules at index {index}"


def _is_met(rule: SuccessRule, completions: int, succeeded: Indexes) -> bool:
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and len(succeeded) >= rule.succeeded_count
    wanted = Indexes.parse(rule.succeeded_indexes, completions)
    found = len(wanted & succeeded)
    enough = rule.succeeded_count is not None and found >= rule.succeeded_count
    return bool(wanted.ranges) and (found == len(wanted) or enough)
