"""The rules of what makes Pods: replica counts, selectors that match their templates, and what may not change."""

from collections.abc import Iterator
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.problems import forbidden, invalid, required, unsupported
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import dicts, get_in, same_but
from apiserver_stub.kinds.validate_common import at_least, check_selector, selects, unchanged
from apiserver_stub.kinds.validate_metadata import check_labels
from apiserver_stub.kinds.validate_pod import check_template
from controller_manager.api.errors import Cause

_LABELS = "spec.template.metadata.labels"
_JOB_POLICIES = ("Never", "OnFailure")
_CRON_NAME_LIMIT = 52
_STATEFUL_MAY_CHANGE = (
    "minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "replicas", "revisionHistoryLimit",
    "template", "updateStrategy",
)  # fmt: skip
_COUNTS = ("spec.replicas", "spec.minReadySeconds", "spec.revisionHistoryLimit", "spec.progressDeadlineSeconds")
_JOB_COUNTS = ("completions", "parallelism", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")


def check_deployment(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """Deployments: as every workload, and a strategy that can make progress."""
    yield from check_workload(new, old)
    strategy = get_in(new, ("spec", "strategy")) or {}
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") == "Recreate" and rolling is not None:
        yield forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    if isinstance(rolling, dict):
        yield from _rolling(rolling, "spec.strategy.rollingUpdate")


def check_workload(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """What Deployments, ReplicaSets, DaemonSets and StatefulSets share."""
    spec = new.get("spec")
    if not isinstance(spec, dict):
        yield required("spec")
        return
    for path in _COUNTS:
        yield from at_least(new, path)
    selector, template = spec.get("selector"), spec.get("template")
    yield from check_selector(selector, "spec.selector")
    if selector == {}:
        yield invalid("spec.selector", selector, "an empty selector would select every Pod")
    elif selector and isinstance(template, dict):
        yield from _matching(selector, template)
    claims = [get_in(claim, ("metadata", "name")) or "" for _, claim in dicts(spec.get("volumeClaimTemplates"))]
    yield from check_template(template, "spec.template", claimed=claims)
    yield from unchanged(new, old, "spec.selector")


def check_stateful_set(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """StatefulSets: most of the spec stays as it was."""
    yield from check_workload(new, old)
    if old is not None and not same_but(_STATEFUL_MAY_CHANGE, new.get("spec", {}), old.get("spec", {})):
        allowed = ", ".join(f"'{name}'" for name in _STATEFUL_MAY_CHANGE)
        yield forbidden("spec", f"updates to a statefulset may only change {allowed}")


def check_replication_controller(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """ReplicationControllers: a plain map as selector, which may change."""
    spec = new.get("spec")
    if not isinstance(spec, dict):
        yield required("spec")
        return
    for path in _COUNTS[:2]:
        yield from at_least(new, path)
    selector, template = spec.get("selector"), spec.get("template")
    if not selector:
        yield required("spec.selector")
    elif isinstance(template, dict):
        yield from _matching(selector, template)
    if template is None:
        yield required("spec.template")
    yield from check_labels(selector, "spec.selector")
    yield from check_template(template, "spec.template")


def check_job(new: Tree, old: Tree | None) -> Iterator[Cause]:
    """Jobs: counts, a template whose Pods end, and what is decided at the start."""
    spec = new.get("spec")
    if not isinstance(spec, dict):
        yield required("spec.template")
        return
    yield from _job_spec(spec, "spec")
    suspended = old is not None and get_in(old, ("spec", "suspend")) is True
    fixed = () if suspended else ("spec.template",)
    elastic = get_in(new, ("spec", "completionMode")) == "Indexed"
    counted = () if elastic else ("spec.completions",)
    yield from unchanged(new, old, "spec.selector", "spec.completionMode", *fixed, *counted)


def check_cron_job(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """CronJobs: a schedule, and a Job template that is in order."""
    name = get_in(new, ("metadata", "name")) or ""
    if len(name) > _CRON_NAME_LIMIT:
        yield invalid("metadata.name", name, f"must be no more than {_CRON_NAME_LIMIT} characters")
    schedule = get_in(new, ("spec", "schedule"))
    if schedule and (why := names.schedule(schedule)):
        yield invalid("spec.schedule", schedule, why)
    for count in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from at_least(new, f"spec.{count}")
    spec = get_in(new, ("spec", "jobTemplate", "spec"))
    if isinstance(spec, dict):
        yield from _job_spec(spec, "spec.jobTemplate.spec")


def check_autoscaler(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """Autoscalers: bounds that leave room."""
    lowest, highest = (get_in(new, ("spec", name)) for name in ("minReplicas", "maxReplicas"))
    if isinstance(lowest, int) and lowest < 1:
        yield invalid("spec.minReplicas", lowest, "must be greater than or equal to 1")
    if isinstance(highest, int) and highest < 1:
        yield invalid("spec.maxReplicas", highest, "must be greater than 0")
    elif isinstance(highest, int) and isinstance(lowest, int) and highest < lowest:
        yield invalid("spec.maxReplicas", highest, "must be greater than or equal to `minReplicas`")
    yield from at_least(new, "spec.targetCPUUtilizationPercentage", 1)


def check_disruption_budget(new: Tree, _old: Tree | None) -> Iterator[Cause]:
    """Disruption budgets: one bound, not two."""
    spec = new.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        yield from _amount(spec.get(name), f"spec.{name}")
    yield from check_selector(spec.get("selector"), "spec.selector")


def _job_spec(spec: Tree, field: str) -> Iterator[Cause]:
    for name in _JOB_COUNTS:
        if isinstance(spec.get(name), int) and spec[name] < 0:
            yield invalid(f"{field}.{name}", spec[name], "must be greater than or equal to 0")
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        yield required(f"{field}.completions", "when completion mode is Indexed")
    template = spec.get("template")
    # A template without a policy has been given Always, which no Job may have.
    if get_in(template, ("spec", "restartPolicy")) == "Always":
        yield unsupported(f"{field}.template.spec.restartPolicy", "Always", _JOB_POLICIES)
    yield from check_template(template, f"{field}.template", ("Always", *_JOB_POLICIES))
    selector, labels = spec.get("selector"), get_in(template, ("metadata", "labels"))
    yield from check_selector(selector, f"{field}.selector")
    if selector and not selects(selector, labels):
        yield invalid(f"{field}.template.metadata.labels", labels or {}, "`selector` does not match template `labels`")


def _matching(selector: Any, template: Tree) -> Iterator[Cause]:
    labels = get_in(template, ("metadata", "labels")) or {}
    if not selects(selector, labels):
        yield invalid(_LABELS, labels, "`selector` does not match template `labels`")


def _rolling(rolling: Tree, field: str) -> Iterator[Cause]:
    for name in ("maxUnavailable", "maxSurge"):
        yield from _amount(rolling.get(name), f"{field}.{name}")
    if all(rolling.get(name) in (0, "0%") for name in ("maxUnavailable", "maxSurge")):
        yield invalid(f"{field}.maxUnavailable", rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0")


def _amount(value: Any, field: str) -> Iterator[Cause]:
    """A count, or a percentage of one."""
    if isinstance(value, int) and value < 0:
        yield invalid(field, value, "must be greater than or equal to 0")
    elif isinstance(value, str) and not (value[:-1].isascii() and value[:-1].isdigit() and value.endswith("%")):
        yield invalid(field, value, "must be an integer or a percentage such as 25%")
