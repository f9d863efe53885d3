"""Builds the pods of a job from its template; pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.batch import JOB_TRACKING, JOBS, Job
from controller_manager.common.api.core import Pod, PodTemplateSpec
from controller_manager.framework import pod_from_template

from .backoff import INDEX_FAILURES, INDEX_IGNORED, failures_before
from .indexes import COMPLETION_INDEX
from .observation import has_limit_per_index, is_indexed
from .policies import verdict_on

# The patch that removes the finalizer of a pod.
RELEASE: Mapping[str, Any] = {"metadata": {"$deleteFromPrimitiveList/finalizers": [JOB_TRACKING]}}

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"

# Maximum length of the prefix of a generated name.
_LONGEST_PREFIX = 58
_CONTAINERS = ("initContainers", "containers")


def template_of(job: Job) -> PodTemplateSpec:
    """Return the template of a job's pods, with the finalizer and, for an indexed job, the index as environment
    variable.
    """
    template, meta = job.spec.template, job.spec.template.metadata
    finalizers = meta.finalizers if JOB_TRACKING in meta.finalizers else (*meta.finalizers, JOB_TRACKING)
    spec = _with_index_variable(template.spec) if is_indexed(job) else template.spec
    return replace(template, metadata=replace(meta, finalizers=finalizers), spec=spec)


def new_pod(job: Job, template: PodTemplateSpec, index: int | None, failed: Pod | None) -> Pod:
    """Return a pod of an index, or of a job without indexes. `failed` is the pod of the index that it replaces."""
    if index is None:
        return pod_from_template(JOBS, job, template)
    meta, mark = template.metadata, {COMPLETION_INDEX: str(index)}
    annotations = {**(meta.annotations or {}), **mark, **_failures(job, failed)}
    marked = replace(meta, labels={**(meta.labels or {}), **mark}, annotations=annotations)
    prefix = _prefix(job.metadata.name, index)
    pod = pod_from_template(JOBS, job, replace(template, metadata=marked), generate_name=prefix)
    return replace(pod, spec=replace(pod.spec, hostname=f"{job.metadata.name}-{index}"))


def _failures(job: Job, failed: Pod | None) -> Mapping[str, str]:
    """Return the annotations that count the failures of an index."""
    if not has_limit_per_index(job):
        return {}
    if failed is None:
        return {INDEX_FAILURES: "0"}
    counts = verdict_on(job.spec.pod_failure_policy, failed).counts
    ignored = failures_before(failed, INDEX_IGNORED) + (not counts)
    found = {INDEX_FAILURES: str(failures_before(failed, INDEX_FAILURES) + counts)}
    return {**found, INDEX_IGNORED: str(ignored)} if ignored else found


def _prefix(name: str, index: int) -> str:
    end = f"-{index}-"
    return f"{name[: _LONGEST_PREFIX - len(end)]}{end}"


def _with_index_variable(spec: msgspec.Raw) -> msgspec.Raw:
    """Return the pod spec with the index variable in all containers."""
    tree = msgspec.json.decode(spec) if bytes(spec) else {}
    changed = {name: [_with_index_in_env(one) for one in tree[name]] for name in _CONTAINERS if tree.get(name)}
    return msgspec.Raw(msgspec.json.encode({**tree, **changed}))


def _with_index_in_env(container: Mapping[str, Any]) -> Mapping[str, Any]:
    known = container.get("env") or []
    if any(one.get("name") == INDEX_VARIABLE for one in known):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    return {**container, "env": [*known, {"name": INDEX_VARIABLE, "valueFrom": source}]}
