"""Fields of disabled features are dropped, as recorded from Kubernetes 1.36."""

import copy
from typing import Any

import pytest

from apiserver_stub.common.flags.features import PROJECTED_BUNDLES, STOP_SIGNALS
from apiserver_stub.kinds.gated_fields import drop_gated, gated_fields
from controller_manager.common.api.tree import Tree

STOP: Tree = {"name": "c", "lifecycle": {"stopSignal": "SIGTERM"}}
SLEEP: Tree = {"sleep": {"seconds": 1}}
BUNDLE: Tree = {"clusterTrustBundle": {"name": "b", "path": "p"}}
MAP: Tree = {"configMap": {"name": "x"}}
SOURCE: Tree = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "x"}


def sources(*found: Tree) -> Tree:
    return {"volumes": [{"name": "v", "projected": {"sources": list(found)}}, {"name": "w", "emptyDir": {}}]}


def pod(**spec: Any) -> Tree:
    return {"spec": {"containers": [{"name": "c"}], **spec}}


def rolling(**update: Any) -> Tree:
    return {"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1, **update}}}}


ROWS: list[tuple[str, Tree, Tree]] = [
    ("pods", pod(**sources(MAP, BUNDLE)), pod(**sources(MAP, {}))),
    ("pods", pod(**sources(MAP, {"podCertificate": {"keyType": "ED25519"}}, MAP)), pod(**sources(MAP, {}, MAP))),
    ("pods", pod(containers=[STOP]), pod(containers=[{"name": "c"}])),
    ("pods", pod(initContainers=[STOP]), pod(initContainers=[{"name": "c"}])),
    (
        "pods",
        pod(containers=[{"name": "c", "lifecycle": {"stopSignal": "SIGTERM", "preStop": SLEEP}}]),
        pod(containers=[{"name": "c", "lifecycle": {"preStop": SLEEP}}]),
    ),
    ("pods", pod(schedulingGroup={"podGroupName": "x"}), pod()),
    ("deployments.apps", {"spec": {"template": pod(containers=[STOP])}}, {"spec": {"template": pod()}}),
    ("podtemplates", {"template": pod(schedulingGroup={})}, {"template": pod()}),
    (
        "cronjobs.batch",
        {"spec": {"jobTemplate": {"spec": {"template": pod(containers=[STOP])}}}},
        {"spec": {"jobTemplate": {"spec": {"template": pod()}}}},
    ),
    ("statefulsets.apps", rolling(maxUnavailable=2), rolling()),
    ("persistentvolumeclaims", {"spec": {"dataSourceRef": {**SOURCE, "namespace": "other"}}}, {"spec": {}}),
    ("persistentvolumeclaims", {"spec": {"dataSourceRef": SOURCE}}, {"spec": {"dataSourceRef": SOURCE}}),
    ("csidrivers.storage.k8s.io", {"spec": {"preventPodSchedulingIfMissing": True}}, {"spec": {}}),
    (
        "resourceslices.resource.k8s.io",
        {"spec": {"devices": [{"name": "d", "nodeAllocatableResourceMappings": {"cpu": {}}}]}},
        {"spec": {"devices": [{"name": "d"}]}},
    ),
    (
        "resourceslices.resource.k8s.io",
        {"spec": {"devices": [{"attributes": {"a": {"strings": ["x"], "string": "y"}, "b": {"ints": [1]}}}]}},
        {"spec": {"devices": [{"attributes": {"a": {"string": "y"}, "b": {}}}]}},
    ),
    ("configmaps", {"data": {"a": "b"}}, {"data": {"a": "b"}}),
]


@pytest.mark.parametrize(("kind", "sent", "kept"), ROWS)
def test_gated_fields_are_dropped(kind: str, sent: Tree, kept: Tree) -> None:
    tree = copy.deepcopy(sent)
    drop_gated(gated_fields(kind, lambda _: False), tree)
    assert tree == kept
    drop_gated(gated_fields(kind, lambda _: True), sent_again := copy.deepcopy(sent))
    assert sent_again == sent


def test_node_config_source_is_removed() -> None:
    node = {"spec": {"configSource": {"configMap": {}}, "unschedulable": True}, "status": {"config": {"assigned": {}}}}
    drop_gated(gated_fields("nodes", lambda _: True), node)
    assert node == {"spec": {"unschedulable": True}, "status": {}}


def test_objects_that_use_a_gated_field_may_use_it() -> None:
    fields = gated_fields("pods", lambda feature: feature != STOP_SIGNALS)
    new = pod(containers=[{"name": "other"}, copy.deepcopy(STOP)])
    drop_gated(fields, new, pod(containers=[STOP]))
    assert new == pod(containers=[{"name": "other"}, STOP])
    drop_gated(fields, new, pod())
    assert new == pod(containers=[{"name": "other"}, {"name": "c"}])


def test_use_of_another_feature_does_not_count() -> None:
    new = pod(**sources(copy.deepcopy(BUNDLE)))
    drop_gated(gated_fields("pods", lambda feature: feature != PROJECTED_BUNDLES), new, pod(containers=[STOP]))
    assert new == pod(**sources({}))
