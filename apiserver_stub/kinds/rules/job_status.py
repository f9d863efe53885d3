"""Validation of the status of a Job: valid combinations of fields, and fields that never revert (KEP-4368).

A rule only applies if a field it covers changes. A status that breaks it for another reason, for example because the
Job was scaled down, can still be written.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from apiserver_stub.common.error_list import IMMUTABLE, NO_VALUE, ErrorList, place
from apiserver_stub.kinds.rules.combine import at_least, record
from controller_manager.common.api.tree import Tree

_AT = place("status")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")
_PARTS = (*_COUNTS, "startTime", "completionTime", "completedIndexes", "failedIndexes", "uncountedTerminatedPods")
_ENDS = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")


@dataclass(frozen=True, slots=True)
class _JobState:
    """A job: its spec, its status, and the types of its true conditions, which count as fields of the status."""

    spec: Tree
    status: Tree

    @classmethod
    def of(cls, job: Tree) -> "_JobState":
        status = job.get("status") or {}
        true = {one.get("type") for one in status.get("conditions") or () if one.get("status") == "True"}
        parts: Tree = {name: status[name] for name in _PARTS if status.get(name) is not None}
        parts |= {name: True for name in _ENDS if name in true}
        if "Complete" in true or "Failed" in true:
            parts["finished"] = True
        return cls(job.get("spec") or {}, parts)

    def __contains__(self, part: object) -> bool:
        return part in self.status

    def count(self, name: str) -> int:
        found: int = self.status.get(name, 0)
        return found

    @property
    def is_indexed(self) -> bool:
        return self.spec.get("completionMode") == "Indexed"


class _Rule(NamedTuple):
    """The error of a field, and the fields whose change makes the rule apply."""

    parts: frozenset[str]
    wrong: Callable[[_JobState], bool]
    field: str
    why: str
    required: bool = False


def _rule(parts: str, wrong: Callable[[_JobState], bool], field: str, why: str, *, required: bool = False) -> _Rule:
    return _Rule(frozenset(parts.split()), wrong, field, why, required)


def index_ranges(text: str, completions: int) -> list[tuple[int, int]] | None:
    """Return the ranges of an index list below `completions`. None if it is not a sorted index list."""
    found: list[tuple[int, int]] = []
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if len(limits) > 2 or not all(map(_NUMBER.fullmatch, limits)):
            return None
        first, last = int(limits[0]), int(limits[-1])
        in_order = (first < last or len(limits) == 1) and (not found or found[-1][1] < first)
        if not in_order or last >= completions:
            return None
        found.append((first, last))
    return found


def _misread(name: str) -> Callable[[_JobState], bool]:
    def wrong(state: _JobState) -> bool:
        completions = state.spec.get("completions")
        return completions is not None and index_ranges(state.status.get(name, ""), completions) is None

    return wrong


def _overlap(state: _JobState) -> bool:
    completions = state.spec.get("completions")
    if completions is None:
        return False
    texts = (state.status.get(name, "") for name in ("completedIndexes", "failedIndexes"))
    done, failed = (index_ranges(text, completions) or () for text in texts)
    return any(first <= end and start <= last for first, last in done for start, end in failed)


def _ends_early(state: _JobState) -> bool:
    start, completion = state.status.get("startTime"), state.status.get("completionTime")
    return bool(start and completion and completion < start)


def _unstarted(state: _JobState) -> bool:
    waits = state.spec.get("suspend") is True and state.spec.get("completions") == 0
    return "finished" in state and "startTime" not in state and not waits


def _uncounted(state: _JobState) -> bool:
    pods = state.status.get("uncountedTerminatedPods") or {}
    return "finished" in state and bool(pods.get("succeeded") or pods.get("failed"))


def _together(*names: str) -> Callable[[_JobState], bool]:
    return lambda state: all(name in state for name in names)


def _without(name: str, other: str) -> Callable[[_JobState], bool]:
    return lambda state: name in state and other not in state


def _busy(name: str) -> Callable[[_JobState], bool]:
    return lambda state: "finished" in state and state.count(name) > 0


_RULES = (
    _rule("Complete Failed", _together("Complete", "Failed"), "conditions", "Complete and Failed exclude one another"),
    _rule("Complete FailureTarget", _together("Complete", "FailureTarget"), "conditions",
          "Complete and FailureTarget exclude one another"),
    _rule("Complete completionTime", _without("completionTime", "Complete"), "completionTime",
          "only a job that is Complete has one"),
    _rule("Complete completionTime", _without("Complete", "completionTime"), "completionTime",
          "a job that is Complete has one", required=True),
    _rule("startTime completionTime", _ends_early, "completionTime", "may not be before `startTime`"),
    _rule("Failed failedIndexes", _without("Failed", "FailureTarget"), "conditions", "Failed needs FailureTarget"),
    _rule("Complete SuccessCriteriaMet", _without("Complete", "SuccessCriteriaMet"), "conditions",
          "Complete needs SuccessCriteriaMet"),
    _rule("finished active", _busy("active"), "active", "must be 0 for a job that is over"),
    _rule("finished startTime", _unstarted, "startTime", "a job that is over has one", required=True),
    _rule("finished uncountedTerminatedPods", _uncounted, "uncountedTerminatedPods",
          "must be empty for a job that is over"),
    _rule("completedIndexes", _misread("completedIndexes"), "completedIndexes",
          "must be numbers and ranges of numbers in order, below `completions`"),
    _rule("failedIndexes", lambda state: "backoffLimitPerIndex" in state.spec and _misread("failedIndexes")(state),
          "failedIndexes", "must be numbers and ranges of numbers in order, below `completions`"),
    _rule("completedIndexes", lambda state: bool(state.status.get("completedIndexes")) and not state.is_indexed,
          "completedIndexes", "only an indexed job has some"),
    _rule("failedIndexes", lambda state: "failedIndexes" in state and "backoffLimitPerIndex" not in state.spec,
          "failedIndexes", "only a job with backoffLimitPerIndex has some"),
    _rule("failedIndexes completedIndexes", _overlap, "failedIndexes", "no index has both failed and completed"),
    _rule("finished terminating", _busy("terminating"), "terminating", "must be 0 for a job that is over"),
    _rule("ready active", lambda state: "ready" in state and state.count("ready") > state.count("active"), "ready",
          "may not be more than `active`"),
)  # fmt: skip
_ALWAYS = (
    _rule("", _together("SuccessCriteriaMet", "Failed"), "conditions",
          "SuccessCriteriaMet and Failed exclude one another"),
    _rule("", _together("SuccessCriteriaMet", "FailureTarget"), "conditions",
          "SuccessCriteriaMet and FailureTarget exclude one another"),
    _rule("", lambda state: "successPolicy" in state.spec and _without("Complete", "SuccessCriteriaMet")(state),
          "conditions", "Complete needs SuccessCriteriaMet where there is a successPolicy"),
)  # fmt: skip


def _distinct_pods(pods: Any, at: Any, errors: ErrorList) -> None:
    """Check that a pod is listed once, as succeeded or as failed."""
    seen: set[str] = set()
    for name in ("succeeded", "failed"):
        for index, uid in enumerate(pods.get(name) or ()):
            if not uid:
                errors.invalid(((at, name), index), uid, "must not be empty")
            elif uid in seen:
                errors.duplicate(((at, name), index), uid)
            seen.add(uid)


_STATUS = record({
    **dict.fromkeys(_COUNTS, at_least(0)),
    "uncountedTerminatedPods": _distinct_pods,
})  # fmt: skip


def change_status(new: Tree, old: Tree, errors: ErrorList) -> None:
    """Validate an update through the status subresource."""
    _STATUS(new.get("status") or {}, _AT, errors)
    now, before = _JobState.of(new), _JobState.of(old)
    for rule in _RULES:
        if any(now.status.get(part) != before.status.get(part) for part in rule.parts) and rule.wrong(now):
            _report(rule, now, errors)
    for rule in _ALWAYS:
        if rule.wrong(now):
            _report(rule, now, errors)
    _no_reverts(now, before, errors)
    _times(now, before, _resumes(new, old), errors)


def _report(rule: _Rule, state: _JobState, errors: ErrorList) -> None:
    at = (_AT, rule.field)
    if rule.required:
        errors.required(at, rule.why)
    else:
        errors.invalid(at, state.status.get(rule.field, NO_VALUE), rule.why)


def _no_reverts(now: _JobState, before: _JobState, errors: ErrorList) -> None:
    """Check that final conditions stay and that counts do not decrease. `succeeded` may decrease in an elastic indexed
    job.
    """
    for name in _ENDS:
        if name in before and name not in now:
            errors.invalid((_AT, "conditions"), NO_VALUE, f"{name} may not be taken back")
    if "Complete" in before and "SuccessCriteriaMet" in now and "SuccessCriteriaMet" not in before:
        errors.invalid((_AT, "conditions"), NO_VALUE, "SuccessCriteriaMet comes before Complete")
    elastic = now.is_indexed and now.spec.get("completions") == now.spec.get("parallelism")
    for name in ("failed",) if elastic else ("failed", "succeeded"):
        if now.count(name) < before.count(name):
            errors.invalid((_AT, name), now.count(name), "may not decrease")


def _times(now: _JobState, before: _JobState, resumes: bool, errors: ErrorList) -> None:
    done, was_done = (one.status.get("completionTime") for one in (now, before))
    if done and was_done and done != was_done:
        errors.invalid((_AT, "completionTime"), done, IMMUTABLE)
    start, was = (one.status.get("startTime") for one in (now, before))
    if was and start != was and not resumes and now.spec.get("suspend") is not True:
        errors.invalid((_AT, "startTime"), start, "may not change once set, except for a suspended job")


def _resumes(new: Tree, old: Tree) -> bool:
    """Return whether this update resumes a suspended job."""
    return _suspended(old) == "True" and _suspended(new) == "False"


def _suspended(job: Tree) -> str | None:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((one.get("status") for one in conditions if one.get("type") == "Suspended"), None)
