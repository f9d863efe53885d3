"""Flags of the controllers of workloads, and of what limits and tidies them, until there are such controllers."""

from controller_manager.app.unimplemented._needs import needs
from controller_manager.options import Duration, Int32, Options

_cron_job = needs("cronjob-controller")
_daemon_set = needs("daemonset-controller")
_deployment = needs("deployment-controller")
_job = needs("job-controller")
_replica_set = needs("replicaset-controller")
_replication = needs("replicationcontroller-controller")
_stateful_set = needs("statefulset-controller")
_finished = needs("ttl-after-finished-controller")
_admission = needs("validatingadmissionpolicy-status-controller")
_quota = needs("resourcequota-controller")


class WorkloadOptions(Options):
    """How many objects each controller works on at once."""

    title = "Workload controllers"

    concurrent_cron_job_syncs: Int32 = _cron_job(5, "cron jobs worked on at the same time", minimum=1)
    concurrent_daemonset_syncs: Int32 = _daemon_set(2, "daemon sets worked on at the same time", minimum=1)
    concurrent_deployment_syncs: Int32 = _deployment(5, "deployments worked on at the same time", minimum=1)
    concurrent_job_syncs: Int32 = _job(5, "jobs worked on at the same time", minimum=1)
    concurrent_rc_syncs: Int32 = _replication(5, "replication controllers worked on at the same time", minimum=1)
    concurrent_replicaset_syncs: Int32 = _replica_set(5, "replica sets worked on at the same time", minimum=1)
    concurrent_statefulset_syncs: Int32 = _stateful_set(5, "stateful sets worked on at the same time", minimum=1)
    concurrent_ttl_after_finished_syncs: Int32 = _finished(5, "finished jobs looked at at the same time", minimum=1)
    concurrent_validating_admission_policy_status_syncs: Int32 = _admission(
        5, "validating admission policies looked at at the same time", minimum=1
    )


class QuotaOptions(Options):
    """How the use of resources is counted."""

    title = "Resource quota controller"

    concurrent_resource_quota_syncs: Int32 = _quota(5, "resource quotas counted at the same time", minimum=1)
    resource_quota_sync_period: Duration = _quota("5m", "how often everything is counted again", minimum=0.001)


GROUPS = (WorkloadOptions, QuotaOptions)
