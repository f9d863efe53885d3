"""The groups metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io, as far as autoscaling reads them."""

from collections.abc import Mapping

from controller_manager.api.decode import Decoder
from controller_manager.api.model import Model

RESOURCE_METRICS = "metrics.k8s.io"
CUSTOM_METRICS = "custom.metrics.k8s.io"
EXTERNAL_METRICS = "external.metrics.k8s.io"


class _Named(Model):
    name: str = ""


class ContainerMetrics(Model):
    """What one container uses, as quantities by the name of the resource."""

    name: str = ""
    usage: Mapping[str, str | int | float] = {}


class PodMetrics(Model):
    """What the containers of a pod used on average in a `window` (such as "30s") that ended at `timestamp`."""

    metadata: _Named = _Named()
    timestamp: str = ""
    window: str = "0s"
    containers: tuple[ContainerMetrics, ...] = ()


class PodMetricsList(Model):
    items: tuple[PodMetrics, ...] = ()


class CustomValue(Model):
    """A metric of one object, of `v1beta2` or `v1beta1`."""

    described_object: _Named = _Named()
    value: str | int | float = "0"


class CustomValueList(Model):
    items: tuple[CustomValue, ...] = ()


class ExternalValue(Model):
    """One series of a metric of something outside of the cluster."""

    value: str | int | float = "0"


class ExternalValueList(Model):
    items: tuple[ExternalValue, ...] = ()


class _Version(Model):
    version: str


class ApiGroup(Model):
    """The versions of an API group."""

    versions: tuple[_Version, ...] = ()


POD_METRICS = Decoder(PodMetricsList)
CUSTOM_VALUES = Decoder(CustomValueList)
EXTERNAL_VALUES = Decoder(ExternalValueList)
API_GROUP = Decoder(ApiGroup)
