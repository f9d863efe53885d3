"""Workloads: the group apps and replication controllers, with the fields that controllers read."""

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
    """A past state of its owner, as JSON in `data`, which never changes; the newest has the highest `revision`."""

    data: msgspec.Raw = EMPTY_RAW
    revision: int = 0


class ReplicaSetSpec(Model):
    """`replicas` defaults to 1."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelectorSpec = LabelSelectorSpec()
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicaSetStatus(Model):
    """Numbers of pods; `terminating_replicas` is absent if it is not counted."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class ReplicaSet(Object):
    """Keeps `replicas` pods of one template running."""

    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class ReplicationControllerSpec(Model):
    """Like that of a replica set, with labels as selector."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: Mapping[str, str] | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicationController(Object):
    """The predecessor of replica sets."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdateDeployment(Model):
    """Numbers of pods, or percentages of the replicas such as `25%`."""

    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class DeploymentStrategy(Model):
    type: str = ROLLING_UPDATE
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(Model):
    """`replicas` defaults to 1; an absent limit or deadline means none."""

    replicas: int = 1
    min_ready_seconds: int = 0
    paused: bool = False
    progress_deadline_seconds: int | None = None
    revision_history_limit: int | None = None
    selector: LabelSelectorSpec = LabelSelectorSpec()
    strategy: DeploymentStrategy = DeploymentStrategy()
    template: PodTemplateSpec = PodTemplateSpec()


class DeploymentStatus(Model):
    """Sums over the replica sets; `updated_replicas` belong to the newest."""

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
    """Rolls out changes of a template from one replica set to the next."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class RollingUpdateDaemonSet(Model):
    """Numbers of nodes, or percentages of the nodes that should run a pod, such as `10%`."""

    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class DaemonSetUpdateStrategy(Model):
    type: str = ROLLING_UPDATE
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(Model):
    """An absent history limit means none."""

    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    selector: LabelSelectorSpec = LabelSelectorSpec()
    template: PodTemplateSpec = PodTemplateSpec()
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()


class DaemonSetStatus(Model):
    """Numbers of nodes. All except `number_misscheduled` count nodes that should run a pod: all of them, and those
    whose pod exists, is ready, is updated, is available or is unavailable.
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
    """Runs a pod of one template on each matching node."""

    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class StatefulSetOrdinals(Model):
    start: int = 0


class PersistentVolumeClaimRetentionPolicy(Model):
    """What happens to the claims of a stateful set when it is deleted or scaled down."""

    when_deleted: str = RETAIN
    when_scaled: str = RETAIN


class RollingUpdateStatefulSet(Model):
    """`partition` pods, from the first one, are not updated; a number or percentage may be unavailable."""

    partition: int = 0
    max_unavailable: int | str | None = None


class StatefulSetUpdateStrategy(Model):
    type: str = ROLLING_UPDATE
    rolling_update: RollingUpdateStatefulSet | None = None


class StatefulSetSpec(Model):
    """`replicas` defaults to 1; an absent history limit means none."""

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
    """Numbers of pods, and the names of the two revisions of `current_replicas` and `updated_replicas`."""

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
    """Pods of one template, each with its own number, name and claims."""

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
