"""The labels that the Pods of a job get for it to select them by, unless its owner does that by hand."""

from apiserver_stub.kinds.values.trees import get_in, put_in
from controller_manager.common.api.tree import Tree

_UID_LABEL = "batch.kubernetes.io/controller-uid"
_LABELS, _SELECTED = ("spec", "template", "metadata", "labels"), ("spec", "selector", "matchLabels")


def job_labels(job: Tree) -> dict[str, str]:
    """Return them: each under its name of today and under the one it had before."""
    metadata = job.get("metadata") or {}
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    return {
        _UID_LABEL: uid, "controller-uid": uid, "batch.kubernetes.io/job-name": name, "job-name": name,
    }  # fmt: skip


def label_job(job: Tree) -> None:
    """Give the Pods of a new job their labels and have it select by them. What its owner says instead stays, and is
    refused by the rules of jobs.
    """
    if get_in(job, ("spec", "manualSelector")) or not isinstance(get_in(job, ("spec", "template")), dict):
        return
    metadata = job["metadata"]
    labels = get_in(job, _LABELS) or {}
    whole = {**job_labels(job), **labels}
    put_in(job, _LABELS, whole)
    if metadata.get("labels", {}) == labels:  # it has none of its own, and so those of its Pods
        metadata["labels"] = dict(whole)
    put_in(job, _SELECTED, {_UID_LABEL: metadata.get("uid", ""), **(get_in(job, _SELECTED) or {})})
