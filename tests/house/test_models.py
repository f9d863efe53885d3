"""Rules for all models: `null` decodes like an absent field, and models of listed kinds are complete."""

import copy
import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

import controller_manager.common.api
import controller_manager.framework.client
from controller_manager.common.api import (
    autoscaling,
    batch,
    certificates,
    conditions,
    core,
    devices,
    discovery,
    model,
    rbac,
    selectors,
    storage,
)
from controller_manager.common.api.decode import Decoder

COMPLETE = {
    model.OwnerReference: ("meta.v1.OwnerReference",),
    conditions.Condition: (
        "meta.v1.Condition",
        "core.v1.NamespaceCondition",
        "core.v1.PodCondition",
        "batch.v1.JobCondition",
        "autoscaling.v2.HorizontalPodAutoscalerCondition",
        "apps.v1.DeploymentCondition",
        "apps.v1.ReplicaSetCondition",
        "core.v1.ReplicationControllerCondition",
        "core.v1.PersistentVolumeClaimCondition",
    ),
    core.NodeCondition: ("core.v1.NodeCondition",),
    core.Taint: ("core.v1.Taint",),
    core.AttachedVolume: ("core.v1.AttachedVolume",),
    core.NodeSelectorTerm: ("core.v1.NodeSelectorTerm",),
    core.NodeSelector: ("core.v1.NodeSelector",),
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
    selectors.LabelSelectorSpec: ("meta.v1.LabelSelector",),
    selectors.SelectorRequirement: ("meta.v1.LabelSelectorRequirement", "core.v1.NodeSelectorRequirement"),
    rbac.RoleRule: ("rbac.v1.PolicyRule",),
    rbac.AggregationRule: ("rbac.v1.AggregationRule",),
    rbac.Subject: ("rbac.v1.Subject",),
    rbac.RoleRef: ("rbac.v1.RoleRef",),
    storage.CSINodeDriver: ("storage.v1.CSINodeDriver",),
    storage.VolumeNodeResources: ("storage.v1.VolumeNodeResources",),
    batch.UncountedTerminatedPods: ("batch.v1.UncountedTerminatedPods",),
    devices.PoolStatus: ("resource.v1alpha3.PoolStatus",),
    devices.ResourcePoolStatusRequestStatus: ("resource.v1alpha3.ResourcePoolStatusRequestStatus",),
    devices.ConsumerReference: ("resource.v1.ResourceClaimConsumerReference",),
    autoscaling.ObjectInNamespace: ("autoscaling.v2.CrossVersionObjectReference",),
}


@pytest.mark.parametrize("type_", COMPLETE, ids=lambda t: t.__name__)
def test_every_schema_field_is_in_the_model(root: Path, type_: type[model.Model]) -> None:
    schema = json.loads((root / "apiserver_stub/kinds/data/schema.json").read_text())["definitions"]
    modelled = {field.encode_name for field in msgspec.structs.fields(type_)}
    for name in COMPLETE[type_]:
        assert set(schema[name]["fields"]) <= modelled


def _models() -> list[type[model.Model]]:
    """Return every model that is decoded from server data."""
    for package in (controller_manager.common.api, controller_manager.framework.client):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    found, left = set(), [model.Model]
    while left:
        found.update(below := left.pop().__subclasses__())
        left += below
    ours = (one for one in found if one.__module__.startswith("controller_manager."))  # tests have some too
    return sorted(ours, key=lambda each: f"{each.__module__}.{each.__qualname__}")


MODELS = _models()


@pytest.mark.parametrize("type_", MODELS, ids=lambda t: t.__name__)
def test_null_decodes_like_an_absent_field(type_: type[model.Model]) -> None:
    decoder = Decoder(type_)
    fields = {field.encode_name: field for field in msgspec.structs.fields(type_)}
    whole = {name: _example(inspect.type_info(field.type)) for name, field in fields.items()}
    assert decoder.decode(msgspec.json.encode(whole))
    for path in _paths(whole):
        with_null, without = (msgspec.json.encode(_changed(whole, path, keep=keep)) for keep in (True, False))
        assert _outcome(decoder, with_null) == _outcome(decoder, without), path


@pytest.mark.parametrize("type_", MODELS, ids=lambda t: t.__name__)
def test_nullable_fields_are_not_required(type_: type[model.Model]) -> None:
    for field in inspect.type_info(type_).fields:
        assert not field.required or isinstance(field.type, _NEVER_NULL), field.name


def test_models_are_decoded_by_decoder_only(root: Path) -> None:
    """`Decoder` defines how `null` is decoded."""
    direct = re.compile(r"msgspec\.json\.Decoder\(|msgspec\.json\.decode\([^)]*type=")
    allowed = {f"controller_manager/common/api/{name}.py" for name in ("decode", "diff", "protobuf/table")}
    sources = [path for part in ("controller_manager", "controllers") for path in (root / part).rglob("*.py")]
    found = {str(path.relative_to(root)) for path in sources if direct.search(path.read_text())}
    assert found <= allowed


# Types that are not lists, maps or pointers in Go.
_NEVER_NULL = (inspect.StrType, inspect.IntType, inspect.StructType, inspect.RawType)
Path_ = tuple[str | int, ...]
OPEN = {"anything": 0}


def _example(kind: inspect.Type) -> Any:
    """Return a JSON value with a value in every place."""
    match kind:
        case inspect.UnionType():
            return _example(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.StructType():
            return {field.encode_name: _example(field.type) for field in kind.fields}
        case inspect.DictType():
            return {"key": _example(kind.value_type)}
        case inspect.VarTupleType() | inspect.ListType():
            return [_example(kind.item_type)]
        case inspect.StrType() | inspect.BytesType():
            return "text"
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 7
        case inspect.RawType() | inspect.AnyType():
            return OPEN
    raise AssertionError(f"no example of {kind}: how can Go write it?")


def _paths(tree: Any) -> Iterator[Path_]:
    """Yield every path within a tree except below untyped values."""
    for at, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        if value != OPEN:
            yield (at,)
            yield from ((at, *path) for path in _paths(value))


def _changed(tree: Any, path: Path_, *, keep: bool) -> Any:
    """Return the tree with `null`, or without a value, at a path."""
    (at, *rest), copied = path, copy.copy(tree)
    if rest:
        copied[at] = _changed(tree[at], tuple(rest), keep=keep)
    elif keep:
        copied[at] = None
    else:
        del copied[at]
    return copied


def _outcome(decoder: Decoder[Any], data: bytes) -> Any:
    """Return the decoded value without fields that are None."""
    try:
        return _plain(msgspec.json.decode(msgspec.json.encode(decoder.decode(data))))
    except msgspec.ValidationError as error:
        return str(error)


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items() if value is not None}
    return [_plain(value) for value in tree] if isinstance(tree, list | tuple) else tree
