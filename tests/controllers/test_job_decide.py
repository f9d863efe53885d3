"""Decisions of the Job controller: end of jobs, pods to create and delete, counting of pods."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api.batch import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    JOB_TRACKING,
    SUCCESS_CRITERIA_MET,
    Job,
    JobStatus,
    PodFailurePolicy,
)
from controller_manager.common.api.core import Pod
from controller_manager.common.api.timestamps import format_time
from controllers.job.accounting import MOST_UNCOUNTED, account, finish, settle
from controllers.job.backoff import INDEX_FAILURES, INDEX_IGNORED, NO_FAILURE, JobBackoff, finished_at
from controllers.job.decide import MOST_PODS, condition, ending_of, is_complete, plan
from controllers.job.indexes import COMPLETION_INDEX, index_of
from controllers.job.observation import Observation, is_tracked, observe
from controllers.job.pods import new_pod, template_of
from controllers.job.policies import verdict_on

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return format_time(NOW - timedelta(seconds=seconds))


def job(*, status: dict[str, Any] | None = None, restart: str = "Never", **spec: Any) -> Job:
    container = {"name": "main", "image": "i", "env": [{"name": "A", "value": "b"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": restart, "containers": [container]}}
    tree = {
        "metadata": {"name": "work", "namespace": "default", "uid": "job"},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": template, **spec},
        "status": status or {},
    }
    return Job.decode(msgspec.json.encode(tree))


def indexed(completions: int = 3, parallelism: int | None = None, **given: Any) -> Job:
    wanted = completions if parallelism is None else parallelism
    return job(completionMode="Indexed", completions=completions, parallelism=wanted, **given)


def pod(
    uid: str, phase: str = "Running", index: int | None = None, *, going: bool = False, tracked: bool = True,
    code: int | None = None, ended: float = 100, restarts: int = 0, annotations: dict[str, str] | None = None,
    **status: Any,
) -> Pod:  # fmt: skip
    meta: dict[str, Any] = {"name": uid, "namespace": "default", "uid": uid, "creationTimestamp": ago(1000)}
    marks = {**({COMPLETION_INDEX: str(index)} if index is not None else {}), **(annotations or {})}
    meta["annotations"] = marks
    meta["finalizers"] = [JOB_TRACKING] if tracked else []
    if going:
        meta["deletionTimestamp"] = ago(5)
    state: dict[str, Any] = {}
    if phase in ("Succeeded", "Failed"):
        given = (1 if phase == "Failed" else 0) if code is None else code
        state = {"terminated": {"exitCode": given, "finishedAt": ago(ended)}}
    statuses = [{"name": "main", "restartCount": restarts, "state": state}]
    tree = {"metadata": meta, "status": {"phase": phase, "containerStatuses": statuses, **status}}
    return Pod.decode(msgspec.json.encode(tree))


def observed(made: Job, *pods: Pod, backoff: JobBackoff = NO_FAILURE) -> Observation:
    return observe(made, pods, backoff, NOW)


FAIL_ON_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
FAIL_INDEX = {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1]}}]}
ANY_ONE = {"rules": [{"succeededCount": 1}]}


def status_with(kind: str, reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason}]}


@pytest.mark.parametrize(
    ("made", "pods", "kind", "reason"),
    [
        (job(), [pod("a")], "", ""),
        (job(status=status_with(SUCCESS_CRITERIA_MET, "X")), [pod("a")], SUCCESS_CRITERIA_MET, "X"),
        (job(status=status_with(FAILURE_TARGET, "X")), [pod("a")], FAILED, "X"),
        (job(podFailurePolicy=FAIL_ON_42), [pod("a", "Failed", code=42)], FAILURE_TARGET, "PodFailurePolicy"),
        (job(podFailurePolicy=FAIL_ON_42), [pod("a", "Failed", code=41)], "", ""),
        (job(backoffLimit=0), [pod("a", "Failed")], FAILURE_TARGET, "BackoffLimitExceeded"),
        (job(backoffLimit=1), [pod("a", "Failed")], "", ""),
        (job(backoffLimit=1, status={"failed": 1}), [pod("a", "Failed")], FAILURE_TARGET, "BackoffLimitExceeded"),
        (job(backoffLimit=0), [pod("a", "Failed", tracked=False)], "", ""),
        (job(backoffLimit=0), [pod("a", going=True)], FAILURE_TARGET, "BackoffLimitExceeded"),
        (job(backoffLimit=0, podReplacementPolicy="Failed"), [pod("a", going=True)], "", ""),
        (job(restart="OnFailure", backoffLimit=2), [pod("a", restarts=2)], FAILURE_TARGET, "BackoffLimitExceeded"),
        (job(restart="OnFailure", backoffLimit=2), [pod("a", restarts=1)], "", ""),
        (job(restart="OnFailure", backoffLimit=0), [pod("a", restarts=0)], "", ""),
        (job(backoffLimit=2), [pod("a", restarts=5)], "", ""),
        (job(activeDeadlineSeconds=9, status={"startTime": ago(9)}), [pod("a")], FAILURE_TARGET, "DeadlineExceeded"),
        (job(activeDeadlineSeconds=9, status={"startTime": ago(8)}), [pod("a")], "", ""),
        (job(activeDeadlineSeconds=9, suspend=True, status={"startTime": ago(9)}), [], "", ""),
        (indexed(backoffLimitPerIndex=0, maxFailedIndexes=0), [pod("a", "Failed", 1)], FAILURE_TARGET,
         "MaxFailedIndexesExceeded"),
        (indexed(2, backoffLimitPerIndex=0), [pod("a", "Failed", 1)], "", ""),
        (indexed(2, backoffLimitPerIndex=0), [pod("a", "Failed", 1), pod("b", "Succeeded", 0)], FAILURE_TARGET,
         "FailedIndexes"),
        (indexed(1, backoffLimitPerIndex=5, podFailurePolicy=FAIL_INDEX), [pod("a", "Failed", 0, code=2)],
         FAILURE_TARGET, "FailedIndexes"),
        (indexed(1, backoffLimitPerIndex=5, podFailurePolicy=FAIL_INDEX), [pod("a", "Failed", 0, code=1)], "", ""),
        (indexed(successPolicy=ANY_ONE), [pod("a", "Succeeded", 1)], SUCCESS_CRITERIA_MET, "SuccessPolicy"),
        (indexed(successPolicy=ANY_ONE), [pod("a", index=1)], "", ""),
    ],
)  # fmt: skip
def test_job_ends_by_conditions_and_pods(made: Job, pods: Sequence[Pod], kind: str, reason: str) -> None:
    found = ending_of(observed(made, *pods))
    assert (found.type, found.reason) == (kind, reason) if found is not None else kind == ""


PARALLEL = {"parallelism": 3, "completions": 5}


@pytest.mark.parametrize(
    ("made", "pods", "create", "delete"),
    [
        (job(**PARALLEL), [], 3, []),
        (job(**PARALLEL), [pod("a")], 2, []),
        (job(**PARALLEL, status={"succeeded": 4}), [], 1, []),
        (job(**PARALLEL), [pod("a"), pod("b", "Succeeded"), pod("c", going=True)], 0, []),
        (job(**PARALLEL, podReplacementPolicy="Failed"), [pod("c", going=True)], 2, []),
        (job(parallelism=0), [pod("a")], 0, ["a"]),
        (job(parallelism=1, completions=9), [pod("a"), pod("b", "Pending")], 0, ["b"]),
        (job(**PARALLEL, suspend=True), [pod("a"), pod("b")], 0, ["a", "b"]),
        (job(parallelism=2, completions=None), [pod("a", "Succeeded")], 0, []),
        (job(parallelism=2, completions=None), [pod("a", "Failed", ended=1000)], 2, []),
        (job(parallelism=9999, completions=9999), [], MOST_PODS, []),
    ],
)
def test_pods_to_create_and_delete(made: Job, pods: Sequence[Pod], create: int, delete: list[str]) -> None:
    wanted = plan(observed(made, *pods))
    assert (len(wanted.create), sorted(one.metadata.uid for one in wanted.delete)) == (create, delete)


@pytest.mark.parametrize(
    ("made", "pods", "create", "delete"),
    [
        (indexed(), [], [0, 1, 2], []),
        (indexed(5, 2), [pod("a", index=0)], [1], []),
        (indexed(status={"completedIndexes": "0,2"}), [], [1], []),
        (indexed(), [pod("a", "Succeeded", 0), pod("b", index=2)], [1], []),
        (indexed(), [pod("a", index=0), pod("b", "Pending", 0), pod("c", index=1)], [], ["b"]),
        (indexed(2), [pod("a", index=0), pod("b", index=5), pod("c")], [], ["b", "c"]),
        (indexed(podReplacementPolicy="Failed"), [pod("a", index=1, going=True)], [0, 2], []),
        (indexed(backoffLimitPerIndex=1), [pod("a", "Failed", 1, ended=5)], [0, 2], []),
        (indexed(backoffLimitPerIndex=1), [pod("a", "Failed", 1, ended=11)], [0, 1, 2], []),
        (indexed(backoffLimitPerIndex=0), [pod("a", "Failed", 1, ended=11)], [0, 2], []),
    ],
)
def test_indexes_to_create_and_delete(made: Job, pods: Sequence[Pod], create: list[int], delete: list[str]) -> None:
    wanted = plan(observed(made, *pods))
    assert (list(wanted.create), sorted(one.metadata.uid for one in wanted.delete)) == (create, delete)


@pytest.mark.parametrize(
    ("before", "succeeded", "failed", "after"),
    [
        (NO_FAILURE, [], [], NO_FAILURE),
        (NO_FAILURE, [], [50], JobBackoff(1, 50)),
        (JobBackoff(2, 10), [], [50, 40], JobBackoff(4, 50)),
        (JobBackoff(2, 10), [60], [50], NO_FAILURE),
        (JobBackoff(2, 10), [45], [50, 40, 55], JobBackoff(2, 55)),
        (JobBackoff(2, 10), [50], [50], NO_FAILURE),
    ],
)
def test_consecutive_failures_are_counted(
    before: JobBackoff, succeeded: list[int], failed: list[int], after: JobBackoff
) -> None:
    base = NOW.timestamp() - 1000

    def ended(times: list[int], phase: str) -> list[Pod]:
        return [pod(f"{phase}{time}", phase, ended=1000 - time) for time in times]

    start = before if before is NO_FAILURE else JobBackoff(before.failures, base + before.last)
    found = start.after(ended(succeeded, "Succeeded"), ended(failed, "Failed"))
    assert (found.failures, found.last - base if found.failures else 0.0) == after


@pytest.mark.parametrize(
    ("failures", "pause"), [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (10_000, 600)]
)
def test_backoff_doubles_up_to_ten_minutes(failures: int, pause: float) -> None:
    assert JobBackoff(failures, 1000.0).remaining(1000.0) == pause
    assert JobBackoff(failures, 1000.0).remaining(2000.0) == 0


def test_finish_time_of_pod() -> None:
    assert finished_at(pod("a", "Failed", ended=7)) == NOW.timestamp() - 7
    unready = [{"type": "Ready", "status": "False", "lastTransitionTime": ago(9)}]
    assert finished_at(pod("a", conditions=unready)) == NOW.timestamp() - 9
    assert finished_at(pod("a", going=True)) == NOW.timestamp() - 5
    assert finished_at(pod("a")) == NOW.timestamp() - 1000


DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


@pytest.mark.parametrize(
    ("rule", "failed", "action"),
    [
        ({"onExitCodes": {"operator": "In", "values": [1, 2]}}, pod("a", "Failed", code=2), "Count"),
        ({"onExitCodes": {"operator": "In", "values": [1, 2]}}, pod("a", "Failed", code=3), ""),
        ({"onExitCodes": {"operator": "NotIn", "values": [1, 2]}}, pod("a", "Failed", code=3), "Count"),
        ({"onExitCodes": {"operator": "NotIn", "values": [1, 2]}}, pod("a", "Failed", code=0), ""),
        ({"onExitCodes": {"operator": "In", "values": [3], "containerName": "main"}}, pod("a", "Failed", code=3),
         "Count"),
        ({"onExitCodes": {"operator": "In", "values": [3], "containerName": "x"}}, pod("a", "Failed", code=3), ""),
        ({"onExitCodes": {"operator": "In", "values": [3]}}, pod("a", going=True), ""),
        ({"onPodConditions": DISRUPTED}, pod("a", "Failed", conditions=DISRUPTED), "Count"),
        ({"onPodConditions": DISRUPTED}, pod("a", "Failed"), ""),
        ({"onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]},
         pod("a", "Failed", conditions=DISRUPTED), ""),
    ],
)  # fmt: skip
def test_failure_policy_verdict(rule: dict[str, Any], failed: Pod, action: str) -> None:
    policy = msgspec.convert({"rules": [{"action": "Count", **rule}]}, PodFailurePolicy)
    found = verdict_on(policy, failed)
    assert found.action == action
    assert found.counts


def test_new_pod_of_index_inherits_failure_counts() -> None:
    made = indexed(backoffLimitPerIndex=3)
    template = template_of(made)
    last = pod("a", "Failed", 1, annotations={INDEX_FAILURES: "2", INDEX_IGNORED: "1"})
    marks = new_pod(made, template, 1, last).metadata.annotations or {}
    assert (marks[INDEX_FAILURES], marks[INDEX_IGNORED]) == ("3", "1")
    first = new_pod(made, template, 0, None).metadata
    assert (first.annotations or {})[INDEX_FAILURES] == "0"
    assert (first.generate_name, first.finalizers) == ("work-0-", (JOB_TRACKING,))


class Ledger:
    """A job and its pods on the server, and a manager that is interrupted after some writes."""

    def __init__(self, made: Job, pods: Sequence[Pod]) -> None:
        self.job = made
        self.pods = {one.metadata.uid: one for one in pods}

    def run(self, writes: int) -> None:
        """Count pods until the given number of writes."""
        now = observed(self.job, *self.pods.values())
        ending = ending_of(now)
        if ending is None and is_complete(now, len(now.active)):
            ending = condition(SUCCESS_CRITERIA_MET, "CompletionsReached", "", NOW)
        accounts = account(now, self.job.status, ending)
        steps = [("status", accounts.status), *(("pod", one) for one in accounts.settled), ("end", None)]
        for kind, what in steps[:writes]:
            if kind == "status":
                assert isinstance(what, JobStatus)
                self.job = replace(self.job, status=what)
            elif kind == "pod":
                assert isinstance(what, Pod)
                self.pods.pop(what.metadata.uid)
            else:
                tracked = {uid for uid, one in self.pods.items() if is_tracked(one)}
                status = finish(now, settle(self.job.status, tracked), accounts, now.terminating)
                self.job = replace(self.job, status=status)


@given(
    st.booleans(),
    st.lists(st.sampled_from(["Succeeded", "Failed"]), max_size=6),
    st.lists(st.integers(0, 8), max_size=5),
)
def test_interrupted_counting_counts_each_pod_once(with_indexes: bool, phases: list[str], crashes: list[int]) -> None:
    pods = [pod(f"p{at}", phase, at if with_indexes else None) for at, phase in enumerate(phases)]
    made = indexed(len(phases) + 1) if with_indexes else job(completions=len(phases) + 1)
    ledger = Ledger(replace(made, spec=replace(made.spec, backoff_limit=100)), pods)
    for writes in crashes:
        ledger.run(writes)
    ledger.run(100)
    status = ledger.job.status
    assert (status.succeeded, status.failed) == (phases.count("Succeeded"), phases.count("Failed"))
    assert ledger.pods == {}


def test_job_completes_after_all_pods_are_counted() -> None:
    made, done = job(), pod("a", "Succeeded")
    now = observed(made, done)
    ending = condition(SUCCESS_CRITERIA_MET, "CompletionsReached", "", NOW)
    accounts = account(now, made.status, ending)
    assert [one.type for one in accounts.status.conditions] == [SUCCESS_CRITERIA_MET]
    assert accounts.status.uncounted_terminated_pods is not None
    assert accounts.status.uncounted_terminated_pods.succeeded == ("a",)
    still = settle(accounts.status, {"a"})
    assert finish(now, still, accounts, 0) == still
    counted = settle(accounts.status, ())
    assert finish(now, counted, accounts, 1) == counted
    ended = finish(now, counted, accounts, 0)
    assert [one.type for one in ended.conditions] == [SUCCESS_CRITERIA_MET, COMPLETE]
    assert (ended.succeeded, ended.completion_time) == (1, format_time(NOW))


def test_pods_are_counted_in_bounded_batches() -> None:
    pods = [pod(f"p{number}", "Succeeded") for number in range(MOST_UNCOUNTED + 5)]
    made = job(completions=9999)
    accounts = account(observed(made, *pods), made.status, None)
    assert accounts.partial
    assert len(accounts.settled) == MOST_UNCOUNTED


def test_running_pods_of_failed_job_count_as_failed() -> None:
    made, running = job(), pod("a", index=None)
    now = observed(made, running)
    for kind, failed in ((FAILURE_TARGET, ("a",)), (SUCCESS_CRITERIA_MET, ())):
        accounts = account(now, made.status, condition(kind, "R", "", NOW))
        assert [one.metadata.uid for one in accounts.settled] == ["a"]
        assert accounts.status.uncounted_terminated_pods is not None
        assert accounts.status.uncounted_terminated_pods.failed == failed


def test_malformed_completion_index_is_none() -> None:
    odd = [pod("a", annotations={COMPLETION_INDEX: text}) for text in ("", "x", "-1", "1.5")]
    assert [index_of(one) for one in odd] == [None] * 4


@pytest.mark.parametrize(
    ("made", "failed", "message"),
    [
        (job(backoffLimit=0), pod("a", "Failed"), "Job has reached the specified backoff limit"),
        (
            job(activeDeadlineSeconds=9, status={"startTime": ago(9)}),
            pod("a"),
            "Job was active longer than specified deadline",
        ),
        (
            job(podFailurePolicy=FAIL_ON_42),
            pod("a", "Failed", code=42),
            "Container main for pod default/a failed with exit code 42 matching FailJob rule at index 0",
        ),
        (indexed(successPolicy=ANY_ONE), pod("a", "Succeeded", 1), "Matched rules at index 0"),
    ],
)
def test_ending_messages_are_those_of_kubernetes(made: Job, failed: Pod, message: str) -> None:
    found = ending_of(observed(made, failed))
    assert found is not None
    assert found.message == message
