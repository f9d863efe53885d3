"""The group autoscaling: horizontal pod autoscalers (v2), and the scale subresource of their targets (v1)."""

from typing import Any, ClassVar

from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.selectors import LabelSelectorSpec


class ObjectInNamespace(Model):
    """A reference to an object in the same namespace (`CrossVersionObjectReference`), complete."""

    kind: str = ""
    name: str = ""
    api_version: str = ""

    @property
    def group(self) -> str:
        """Return the API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]


class MetricIdentifier(Model):
    """The name of a metric and the selector of its series; complete."""

    name: str
    selector: LabelSelectorSpec | None = None


class MetricTarget(Model):
    """The target of a metric: `type` selects one of the three values."""

    type: str = ""
    average_utilization: int | None = None
    average_value: str | int | float | None = None
    value: str | int | float | None = None


class ResourceSource(Model):
    """Resource usage of the pods, or of one `container` in each pod."""

    name: str
    target: MetricTarget = MetricTarget()
    container: str = ""


class PodsSource(Model):
    metric: MetricIdentifier
    target: MetricTarget = MetricTarget()


class ObjectSource(Model):
    metric: MetricIdentifier
    described_object: ObjectInNamespace
    target: MetricTarget = MetricTarget()


class ExternalSource(Model):
    metric: MetricIdentifier
    target: MetricTarget = MetricTarget()


class MetricSpec(Model):
    """A metric to scale by, in the field named by `type`."""

    type: str
    resource: ResourceSource | None = None
    container_resource: ResourceSource | None = None
    pods: PodsSource | None = None
    object: ObjectSource | None = None
    external: ExternalSource | None = None


class ScalingPolicy(Model):
    """At most `value` pods, or percent of the pods, per `period_seconds`."""

    type: str
    value: int
    period_seconds: int


class ScalingRules(Model):
    """The limits of scaling in one direction: policies, and a stabilization window in seconds."""

    stabilization_window_seconds: int | None = None
    select_policy: str = "Max"
    policies: tuple[ScalingPolicy, ...] = ()
    tolerance: str | int | float | None = None


class Behavior(Model):
    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class AutoscalerSpec(Model):
    scale_target_ref: ObjectInNamespace = ObjectInNamespace()
    max_replicas: int = 0
    min_replicas: int = 1
    metrics: tuple[MetricSpec, ...] = ()
    behavior: Behavior | None = None


class MetricValue(Model):
    """A measured value; complete."""

    average_utilization: int | None = None
    average_value: str | int | float | None = None
    value: str | int | float | None = None


class ResourceStatus(Model):
    """Complete, like the four classes below."""

    name: str
    current: MetricValue


class ContainerResourceStatus(Model):
    name: str
    container: str
    current: MetricValue


class PodsStatus(Model):
    metric: MetricIdentifier
    current: MetricValue


class ObjectStatus(Model):
    metric: MetricIdentifier
    described_object: ObjectInNamespace
    current: MetricValue


class ExternalStatus(Model):
    metric: MetricIdentifier
    current: MetricValue


class MetricStatus(Model):
    """The status of the metric at the same index of the spec, complete; without a type if it could not be measured."""

    type: str
    resource: ResourceStatus | None = None
    container_resource: ContainerResourceStatus | None = None
    pods: PodsStatus | None = None
    object: ObjectStatus | None = None
    external: ExternalStatus | None = None


class AutoscalerStatus(Model):
    observed_generation: int | None = None
    last_scale_time: str | None = None
    current_replicas: int = 0
    desired_replicas: int = 0
    current_metrics: tuple[MetricStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class HorizontalPodAutoscaler(Object):
    """Adjusts the number of pods of a target to its metrics."""

    spec: AutoscalerSpec = AutoscalerSpec()
    status: AutoscalerStatus = AutoscalerStatus()


class ScaleSpec(Model):
    replicas: int = 0


class ScaleStatus(Model):
    """The current number of pods, and their selector as text."""

    replicas: int = 0
    selector: str = ""


class Scale(Object):
    """The current and desired replicas of an object of any kind."""

    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class ScaleResource(Resource[Scale], frozen=True):
    """The subresource `scale` of another resource: it has that resource's path, and Scale objects."""

    API_VERSION: ClassVar = "autoscaling/v1"

    @property
    def api_version(self) -> str:
        """Return the API version of Scale."""
        return self.API_VERSION


HORIZONTAL_POD_AUTOSCALERS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True, HorizontalPodAutoscaler
)


def scale_of(resource: Resource[Any]) -> ScaleResource:
    """Return the `scale` subresource of a resource."""
    return ScaleResource(resource.group, resource.version, resource.plural, "Scale", resource.namespaced, Scale)
