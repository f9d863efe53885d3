"""Objects in lists that controllers change are modelled completely: an update replaces such a list as a whole."""

import json
from pathlib import Path

import msgspec
import pytest

from controller_manager.api import autoscaling, certificates, core, discovery, edit, model, nodes

COMPLETE = {
    model.OwnerReference: ("meta.v1.OwnerReference",),
    edit.Condition: (
        "meta.v1.Condition",
        "core.v1.NamespaceCondition",
        "core.v1.PodCondition",
        "autoscaling.v2.HorizontalPodAutoscalerCondition",
    ),
    nodes.NodeCondition: ("core.v1.NodeCondition",),
    nodes.Taint: ("core.v1.Taint",),
    certificates.RequestCondition: ("certificates.v1.CertificateSigningRequestCondition",),
    core.Toleration: ("core.v1.Toleration",),
    core.ObjectReference: ("core.v1.ObjectReference",),
    core.EndpointAddress: ("core.v1.EndpointAddress",),
    core.EndpointPort: ("core.v1.EndpointPort",),
    core.EndpointSubset: ("core.v1.EndpointSubset",),
    discovery.Endpoint: ("discovery.v1.Endpoint",),
    discovery.EndpointConditions: ("discovery.v1.EndpointConditions",),
    discovery.EndpointHints: ("discovery.v1.EndpointHints",),
    discovery.ForZone: ("discovery.v1.ForZone",),
    discovery.ForNode: ("discovery.v1.ForNode",),
    discovery.SlicePort: ("discovery.v1.EndpointPort",),
    autoscaling.MetricStatus: ("autoscaling.v2.MetricStatus",),
    autoscaling.ResourceStatus: ("autoscaling.v2.ResourceMetricStatus",),
    autoscaling.ContainerResourceStatus: ("autoscaling.v2.ContainerResourceMetricStatus",),
    autoscaling.PodsStatus: ("autoscaling.v2.PodsMetricStatus",),
    autoscaling.ObjectStatus: ("autoscaling.v2.ObjectMetricStatus",),
    autoscaling.ExternalStatus: ("autoscaling.v2.ExternalMetricStatus",),
    autoscaling.MetricValue: ("autoscaling.v2.MetricValueStatus",),
    autoscaling.MetricIdentifier: ("autoscaling.v2.MetricIdentifier",),
    autoscaling.MetricSelector: ("meta.v1.LabelSelector",),
    autoscaling.SelectorRequirement: ("meta.v1.LabelSelectorRequirement",),
    autoscaling.ObjectInNamespace: ("autoscaling.v2.CrossVersionObjectReference",),
}


@pytest.mark.parametrize("type_", COMPLETE, ids=lambda t: t.__name__)
def test_every_field_of_the_schema_is_modelled(root: Path, type_: type[model.Model]) -> None:
    schema = json.loads((root / "apiserver_stub/kinds/data/schema.json").read_text())["definitions"]
    modelled = {field.encode_name for field in msgspec.structs.fields(type_)}
    for name in COMPLETE[type_]:
        assert set(schema[name]["fields"]) <= modelled
