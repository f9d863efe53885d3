"""The group batch: jobs and cron jobs, with the fields that controllers read."""

from collections.abc import Iterable

import msgspec

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import ObjectReference, PodTemplateSpec
from controller_manager.common.api.model import EMPTY_RAW, Model, Object, ObjectMeta
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import LabelSelectorSpec

INDEXED, NON_INDEXED = "Indexed", "NonIndexed"

# Condition types of a job: the first two mean that it is finished, the other two that it is about to be.
COMPLETE, FAILED = "Complete", "Failed"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"
SUSPENDED = "Suspended"

JOB_TRACKING = f"batch.{PLATFORM_DOMAIN}/job-tracking"
"""The finalizer of a pod that its job has not counted yet."""


class ExitCodes(Model):
    """`onExitCodes`; without a name it applies to all containers."""

    operator: str = ""
    container_name: str | None = None
    values: tuple[int, ...] = ()


class ConditionPattern(Model):
    type: str = ""
    status: str = ""


class PodFailureRule(Model):
    """`podFailurePolicy.rules[]`: the action for matching failed pods."""

    action: str = ""
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[ConditionPattern, ...] = ()


class PodFailurePolicy(Model):
    rules: tuple[PodFailureRule, ...] = ()


class SuccessRule(Model):
    """`successPolicy.rules[]`: the indexes, as text, and how many of them (or of all) must succeed."""

    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(Model):
    rules: tuple[SuccessRule, ...] = ()


class JobSpec(Model):
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = NON_INDEXED
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    managed_by: str | None = None
    pod_replacement_policy: str = ""
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    selector: LabelSelectorSpec | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class UncountedTerminatedPods(Model):
    """The uids of finished pods that are not counted yet, complete."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Model):
    conditions: tuple[Condition, ...] = ()
    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(Object):
    """Runs pods until a given number of them has succeeded."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class JobTemplateSpec(Model):
    """A job template: metadata, and the spec as JSON, so that no field is lost."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = EMPTY_RAW


class CronJobSpec(Model):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None
    job_template: JobTemplateSpec = JobTemplateSpec()


class CronJobStatus(Model):
    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Object):
    """Creates jobs on a schedule."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


JOBS = Resource("batch", "v1", "jobs", "Job", True, Job)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", True, CronJob)


def end_of(conditions: Iterable[Condition]) -> Condition | None:
    """Return the condition that finished a job, Complete or Failed; None for an unfinished job."""
    return next((one for one in conditions if one.type in (COMPLETE, FAILED) and one.status == "True"), None)


def is_finished(job: Job) -> bool:
    """Return whether a job is finished."""
    return end_of(job.status.conditions) is not None
