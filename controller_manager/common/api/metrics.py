"""The groups metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io, with the fields for autoscaling."""

from collections.abc import Mapping

import msgspec

from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model

RESOURCE_METRICS = "metrics.k8s.io"
CUSTOM_METRICS = "custom.metrics.k8s.io"
EXTERNAL_METRICS = "external.metrics.k8s.io"


class _Named(Model):
    name: str = ""


class ContainerMetrics(Model):
    """The usage of one container, as quantities by resource name."""

    name: str = ""
    usage: Mapping[str, str | int | float] = {}


class PodMetrics(Model):
    """The average usage of a pod's containers in a `window` (such as "30s") that ended at `timestamp`."""

    metadata: _Named = _Named()
    timestamp: str = ""
    window: str = "0s"
    containers: tuple[ContainerMetrics, ...] = ()


class MetricsList(Model):
    """Undecoded values of several objects, so that an invalid one does not affect the others."""

    items: tuple[msgspec.Raw, ...] = ()


class CustomValue(Model):
    """A metric of one object, of `v1beta2` or `v1beta1`."""

    described_object: _Named = _Named()
    value: str | int | float = "0"


class ExternalValue(Model):
    """One series of an external metric."""

    value: str | int | float = "0"


class _Version(Model):
    version: str


class ApiGroup(Model):
    """The versions of an API group."""

    versions: tuple[_Version, ...] = ()


METRICS_LIST = Decoder(MetricsList)
POD_METRICS = Decoder(PodMetrics)
CUSTOM_VALUE = Decoder(CustomValue)
EXTERNAL_VALUE = Decoder(ExternalValue)
API_GROUP = Decoder(ApiGroup)
