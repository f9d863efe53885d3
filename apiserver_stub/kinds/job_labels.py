"""The labels that the Pods of a job get for it to select them by, unless its owner does that by hand."""

from apiserver_stub.kinds.schema import Tree

UID_LABEL = "batch.kubernetes.io/controller-uid"


def job_labels(job: Tree) -> dict[str, str]:
    """Return them: each under its name of today and under the one it had before."""
    metadata = job.get("metadata") or {}
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    return {
        UID_LABEL: uid, "controller-uid": uid, "batch.kubernetes.io/job-name": name, "job-name": name,
    }  # fmt: skip
