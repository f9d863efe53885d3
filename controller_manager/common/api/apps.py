"""Workloads, as far as controllers read them: the group apps, and replication controllers of the core group."""

from collections.abc import Mapping

import msgspec

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.core import PersistentVolumeClaimTemplate, PodTemplateSpec
from controller_manager.common.api.model import EMPTY_RAW, Model, Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import LabelSelectorSpec

RECREATE, ROLLING_UPDATE, ON_DELETE = "Recreate", "RollingUpdate", "OnDelete"
ORDERED_READY, PARALLEL = "OrderedReady", "Parallel"
RETAIN, DELETE = "Retain", "Delete"


class ControllerRevision(Object):
    """A state that its owner had, as JSON in `data`, which never changes; the newest has the highest `revision`."""

    data: msgspec.Raw = EMPTY_RAW
    revision: int = 0


class ReplicaSetSpec(Model):
    """`replicas` are one where nothing is said."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelectorSpec = LabelSelectorSpec()
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicaSetStatus(Model):
    """The numbers of pods; `terminating_replicas` is absent where nobody counts them."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class ReplicaSet(Object):
    """So many pods of one template."""

    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class ReplicationControllerSpec(Model):
    """As that of a replica set, with labels for a selector."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: Mapping[str, str] | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicationController(Object):
    """What replica sets took the place of."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdateDeployment(Model):
    """Numbers of pods, or percentages of the replicas, as in `25%`."""

    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class DeploymentStrategy(Model):
    type: str = ROLLING_UPDATE
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(Model):
    """`replicas` are one where nothing is said; a limit or a deadline that is absent is none."""

    replicas: int = 1
    min_ready_seconds: int = 0
    paused: bool = False
    progress_deadline_seconds: int | None = None
    revision_history_limit: int | None = None
    selector: LabelSelectorSpec = LabelSelectorSpec()
    strategy: DeploymentStrategy = DeploymentStrategy()
    template: PodTemplateSpec = PodTemplateSpec()


class DeploymentStatus(Model):
    """The sums over its replica sets; `updated_replicas` are those of the newest."""

    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    collision_count: int | None = None
    conditions: tuple[Condition, ...] = ()


class Deployment(Object):
    """A template whose changes are rolled out, from one replica set to the next."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class RollingUpdateDaemonSet(Model):
    """Numbers of nodes, or percentages of those that should run a pod, as in `10%`."""

    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class DaemonSetUpdateStrategy(Model):
    type: str = ROLLING_UPDATE
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(Model):
    """A limit of the history that is absent is none."""

    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    selector: LabelSelectorSpec = LabelSelectorSpec()
    template: PodTemplateSpec = PodTemplateSpec()
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()


class DaemonSetStatus(Model):
    """Numbers of nodes. All but `number_misscheduled` are of those that should run a pod: how many there are, have one,
    have one that is ready, of the present template, available, or none that is.
    """

    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    observed_generation: int = 0
    collision_count: int | None = None


class DaemonSet(Object):
    """A pod of one template on each node that it fits."""

    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class StatefulSetOrdinals(Model):
    start: int = 0


class PersistentVolumeClaimRetentionPolicy(Model):
    """The fate of the claims of a stateful set that is deleted, and of pods that it is scaled down by."""

    when_deleted: str = RETAIN
    when_scaled: str = RETAIN


class RollingUpdateStatefulSet(Model):
    """`partition` pods, from the first one, stay as they are; a number, or a percentage, may be unavailable."""

    partition: int = 0
    max_unavailable: int | str | None = None


class StatefulSetUpdateStrategy(Model):
    type: str = ROLLING_UPDATE
    rolling_update: RollingUpdateStatefulSet | None = None


class StatefulSetSpec(Model):
    """`replicas` are one where nothing is said; a limit of the history that is absent is none."""

    replicas: int = 1
    min_ready_seconds: int = 0
    ordinals: StatefulSetOrdinals = StatefulSetOrdinals()
    persistent_volume_claim_retention_policy: PersistentVolumeClaimRetentionPolicy = (
        PersistentVolumeClaimRetentionPolicy()
    )
    pod_management_policy: str = ORDERED_READY
    revision_history_limit: int | None = None
    selector: LabelSelectorSpec = LabelSelectorSpec()
    service_name: str = ""
    template: PodTemplateSpec = PodTemplateSpec()
    update_strategy: StatefulSetUpdateStrategy = StatefulSetUpdateStrategy()
    volume_claim_templates: tuple[PersistentVolumeClaimTemplate, ...] = ()


class StatefulSetStatus(Model):
    """Numbers of pods, and the names of two revisions: `current_replicas` and `updated_replicas` are of these."""

    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    observed_generation: int = 0
    collision_count: int | None = None


class StatefulSet(Object):
    """Pods of one template that each have a number, a name and claims of their own."""

    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision", True, ControllerRevision)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, ReplicaSet)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True, DaemonSet)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, Deployment)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", True, StatefulSet)
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", True, ReplicationController
)
