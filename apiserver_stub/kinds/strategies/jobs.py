"""The labels and the selector that the server generates for a Job without `manualSelector`."""

from apiserver_stub.kinds.values.trees import get_in, put_in
from controller_manager.common.api.tree import Tree

_UID_LABEL = "batch.kubernetes.io/controller-uid"
_LABELS, _SELECTED = ("spec", "template", "metadata", "labels"), ("spec", "selector", "matchLabels")


def job_labels(job: Tree) -> dict[str, str]:
    """Return the generated labels, each under its current and its legacy name."""
    metadata = job.get("metadata") or {}
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    return {
        _UID_LABEL: uid, "controller-uid": uid, "batch.kubernetes.io/job-name": name, "job-name": name,
    }  # fmt: skip


def label_job(job: Tree) -> None:
    """Set the generated labels and the selector of a new Job. Different values set by the user stay and are rejected by
    validation.
    """
    if get_in(job, ("spec", "manualSelector")) or not isinstance(get_in(job, ("spec", "template")), dict):
        return
    metadata = job["metadata"]
    labels = get_in(job, _LABELS) or {}
    whole = {**job_labels(job), **labels}
    put_in(job, _LABELS, whole)
    if metadata.get("labels", {}) == labels:  # the Job had no labels and got those of its Pods by default
        metadata["labels"] = dict(whole)
    put_in(job, _SELECTED, {_UID_LABEL: metadata.get("uid", ""), **(get_in(job, _SELECTED) or {})})
