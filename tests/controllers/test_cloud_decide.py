"""Decisions of the cloud controllers."""

from ipaddress import ip_network
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Node, NodeAddress, Service
from controller_manager.framework import Change
from controller_manager.framework.cloud_provider import Route, source_ranges
from controllers.cloud_node_lifecycle import SHUTDOWN, NodeAction
from controllers.cloud_node_lifecycle import decide as decide_node
from controllers.node_route import condition_for, is_ours, plan_routes
from controllers.service_load_balancers import (
    FINALIZER,
    Ensured,
    LoadBalancerAction,
    decide,
    needs_update,
    nodes_changed,
)
from controllers.shared.cloud import EXCLUDED, TO_BE_DELETED, backends, identities

Tree = dict[str, Any]


def node(name: str = "a", spec: Tree | None = None, status: Tree | None = None, **metadata: Any) -> Node:
    tree = {"metadata": {"name": name, **metadata}, "spec": spec or {}, "status": status or {}}
    return Node.decode(msgspec.json.encode(tree))


def service(finalizers: tuple[str, ...] = (), gone: str | None = None, uid: str = "1", **spec: Any) -> Service:
    metadata = {"name": "web", "namespace": "default", "uid": uid, "finalizers": finalizers, "deletionTimestamp": gone}
    full = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
    return Service.decode(msgspec.json.encode({"metadata": metadata, "spec": full}))


NOW = "2026-01-01T00:00:00Z"
ENSURED = Ensured(service(), {"a": "x"})
HELD = (FINALIZER,)


@pytest.mark.parametrize(
    ("found", "ensured", "nodes", "step"),
    [
        pytest.param(service(), None, {}, LoadBalancerAction.ENSURE, id="new"),
        pytest.param(service(HELD), None, {}, LoadBalancerAction.ENSURE, id="after a restart"),
        pytest.param(service(HELD), ENSURED, {"a": "x"}, LoadBalancerAction.NOTHING, id="unchanged"),
        pytest.param(service(HELD), ENSURED, {"a": "x", "b": ""}, LoadBalancerAction.UPDATE, id="one more node"),
        pytest.param(service(HELD), ENSURED, {"a": "y"}, LoadBalancerAction.UPDATE, id="another machine"),
        pytest.param(service(HELD, ports=[{"port": 81}]), ENSURED, {}, LoadBalancerAction.ENSURE, id="another port"),
        pytest.param(service(HELD, gone=NOW), ENSURED, {"a": "x"}, LoadBalancerAction.CLEAN_UP, id="being deleted"),
        pytest.param(
            service(HELD, gone=NOW), None, {}, LoadBalancerAction.CLEAN_UP, id="being deleted after a restart"
        ),
        pytest.param(
            service(gone=NOW, type="ClusterIP"), None, {}, LoadBalancerAction.NOTHING, id="being deleted, never ours"
        ),
        pytest.param(service(HELD, type="ClusterIP"), None, {}, LoadBalancerAction.CLEAN_UP, id="of another type"),
        pytest.param(
            service(type="ClusterIP"), ENSURED, {}, LoadBalancerAction.CLEAN_UP, id="of another type, without finalizer"
        ),
        pytest.param(service(type="ClusterIP"), None, {}, LoadBalancerAction.NOTHING, id="never a load balancer"),
        pytest.param(service(loadBalancerClass="a/b"), None, {}, LoadBalancerAction.NOTHING, id="of a class"),
        pytest.param(
            service(HELD, loadBalancerClass="a/b"), ENSURED, {}, LoadBalancerAction.CLEAN_UP, id="of a class now"
        ),
    ],
)
def test_load_balancer_action_for_service(
    found: Service, ensured: Ensured | None, nodes: Any, step: LoadBalancerAction
) -> None:
    assert decide(found, ensured, nodes) is step


@pytest.mark.parametrize(
    "spec",
    [
        {"ports": [{"port": 80, "nodePort": 30000}]},
        {"ports": [{"port": 80, "name": "web"}]},
        {"ports": [{"port": 80, "protocol": "UDP"}]},
        {"ports": []},
        {"sessionAffinity": "ClientIP"},
        {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}},
        {"loadBalancerIP": "192.0.2.1"},
        {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
        {"externalIPs": ["192.0.2.1"]},
        {"externalTrafficPolicy": "Local"},
        {"healthCheckNodePort": 30001},
        {"ipFamilies": ["IPv4", "IPv6"]},
        {"uid": "2"},
        {"loadBalancerClass": "a/b"},
    ],
)
def test_change_of_balanced_field_needs_update(spec: Tree) -> None:
    assert needs_update(service(), service(**spec))


@pytest.mark.parametrize("spec", [{"selector": {"a": "b"}}, {"clusterIP": "10.0.0.1"}, {"finalizers": ("a/b",)}])
def test_change_of_other_field_needs_no_update(spec: Tree) -> None:
    assert not needs_update(service(), service(**spec))


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        (node(), True),
        (node(status={"conditions": [{"type": "Ready", "status": "False"}]}), True),
        (node(labels={EXCLUDED: ""}), False),
        (node(labels={EXCLUDED: "true"}), False),
        (node(labels={EXCLUDED: "no"}), False),
        (node(labels={EXCLUDED: "false"}), True),
        (node(labels={EXCLUDED: "F"}), True),
        (node(deletionTimestamp=NOW), False),
        (node(spec={"taints": [{"key": TO_BE_DELETED, "effect": "NoSchedule"}]}), False),
        (node(spec={"taints": [{"key": "other", "effect": "NoSchedule"}]}), True),
        (node(spec={"unschedulable": True}), True),
    ],
)
def test_which_nodes_are_backends(found: Node, counts: bool) -> None:
    assert backends([found]) == ([found] if counts else [])


def test_backends_are_identified_by_provider_id() -> None:
    assert identities([node("a", {"providerID": "x://1"}), node("b")]) == {"a": "x://1", "b": ""}


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (None, node(), True),
        (node(), None, True),
        (node(), node(labels={EXCLUDED: ""}), True),
        (node(), node(spec={"providerID": "x://1"}), True),
        (node(), node(labels={"a": "b"}), False),
        (node(), node(status={"conditions": [{"type": "Ready", "status": "False"}]}), False),
        (node(), node(spec={"taints": [{"key": TO_BE_DELETED, "effect": "NoSchedule"}]}), False),
        (node(), node(deletionTimestamp=NOW), False),
    ],
)
def test_which_node_changes_update_backends(before: Node | None, after: Node | None, counts: bool) -> None:
    assert nodes_changed(Change(before, after)) is counts


@pytest.mark.parametrize(
    ("ranges", "annotation", "expected"),
    [
        ([], "", ["0.0.0.0/0"]),
        ([], " 10.0.0.0/8, 11.0.0.0/8 ", ["10.0.0.0/8", "11.0.0.0/8"]),
        (["10.0.0.0/8"], "11.0.0.0/8", ["10.0.0.0/8"]),
        ([], "everybody", None),
    ],
)
def test_source_ranges_from_spec_or_annotation(ranges: list[str], annotation: str, expected: list[str] | None) -> None:
    metadata = {"annotations": {"service.beta.kubernetes.io/load-balancer-source-ranges": annotation}}
    found = Service.decode(msgspec.json.encode({"metadata": metadata, "spec": {"loadBalancerSourceRanges": ranges}}))
    if expected is None:
        with pytest.raises(ValueError, match="everybody"):
            source_ranges(found)
    else:
        assert list(map(str, source_ranges(found))) == expected


TAINTED = {"taints": [{"key": SHUTDOWN, "effect": "NoSchedule"}]}


def with_ready(status: str) -> Tree:
    return {"conditions": [{"type": "Ready", "status": status}]}


@pytest.mark.parametrize(
    ("found", "exists", "shut_down", "step"),
    [
        (node(status=with_ready("True")), True, False, NodeAction.NOTHING),
        (node(status=with_ready("True")), False, True, NodeAction.NOTHING),
        (node(spec=TAINTED, status=with_ready("True")), True, True, NodeAction.UNTAINT),
        (node(status=with_ready("False")), True, False, NodeAction.NOTHING),
        (node(status=with_ready("Unknown")), False, False, NodeAction.DELETE),
        (node(), False, False, NodeAction.DELETE),
        (node(spec=TAINTED), False, True, NodeAction.DELETE),
        (node(status=with_ready("Unknown")), True, True, NodeAction.TAINT),
        (node(spec=TAINTED), True, True, NodeAction.NOTHING),
        (node(spec=TAINTED), True, False, NodeAction.NOTHING),
    ],
)
def test_node_action_by_readiness_and_instance_state(
    found: Node, exists: bool, shut_down: bool, step: NodeAction
) -> None:
    assert decide_node(found, exists=exists, shut_down=shut_down) is step


NETWORKS = [ip_network("10.0.0.0/16"), ip_network("fd00::/48")]
A, B = (NodeAddress(type="InternalIP", address=f"192.0.2.{number}") for number in (1, 2))


def node_with_cidrs(name: str, *ranges: str, addresses: tuple[NodeAddress, ...] = ()) -> Node:
    return node(name, {"podCIDRs": ranges}, {"addresses": addresses})


def test_plan_creates_missing_route_of_each_pod_cidr() -> None:
    found = node_with_cidrs("a", "10.0.0.0/24", "fd00::/64", addresses=(A,))
    plan = plan_routes([found, node_with_cidrs("b")], [Route("10.0.0.0/24", "a")], NETWORKS)
    assert plan.create == [(found, Route("fd00::/64", "a", addresses=(A,)))]
    assert (plan.delete, plan.concerned) == ([], {"a"})


@pytest.mark.parametrize(
    ("route", "deleted", "made"),
    [
        pytest.param(Route("10.0.0.0/24", "a"), False, False, id="correct"),
        pytest.param(Route("10.0.0.0/24", "a", addresses=(B,)), False, False, id="by name"),
        pytest.param(Route("10.0.0.0/24", "a", addresses=(A,), by_address=True), False, False, id="by address"),
        pytest.param(Route("10.0.0.0/24", "a", addresses=(B,), by_address=True), True, True, id="another address"),
        pytest.param(Route("10.0.0.0/24", "gone"), True, True, id="to a node that is gone"),
        pytest.param(Route("10.0.0.0/24", ""), True, True, id="to no node"),
        pytest.param(Route("10.0.0.0/24", "a", blackhole=True), True, True, id="without a target"),
        pytest.param(Route("10.0.7.0/24", "a"), True, True, id="of another range"),
        pytest.param(Route("10.9.0.0/16", "gone"), False, True, id="of another owner"),
        pytest.param(Route("8.0.0.0/5", "gone"), False, True, id="wider than the cluster"),
        pytest.param(Route("everywhere", "a"), False, True, id="no range"),
    ],
)
def test_plan_for_each_existing_route(route: Route, deleted: bool, made: bool) -> None:
    found = node_with_cidrs("a", "10.0.0.0/24", addresses=(A,))
    plan = plan_routes([found], [route], [ip_network("10.0.0.0/17"), ip_network("10.0.128.0/17")])
    assert plan.delete == ([route] if deleted else [])
    assert plan.create == ([(found, Route("10.0.0.0/24", "a", addresses=(A,)))] if made else [])


def test_node_without_pod_cidrs_is_patched_if_a_route_exists() -> None:
    plan = plan_routes([node_with_cidrs("a"), node_with_cidrs("b")], [Route("10.0.0.0/24", "b")], NETWORKS)
    assert plan.concerned == {"b"}
    assert [one.node for one in plan.delete] == ["b"]


def test_route_overlapping_cluster_cidr_is_ours() -> None:
    assert is_ours(Route("10.0.255.0/24", "a"), NETWORKS)
    assert is_ours(Route("10.0.0.0/8", "a"), NETWORKS)
    assert not is_ours(Route("8.0.0.0/5", "a"), NETWORKS)
    assert is_ours(Route("fd00::/64", "a"), NETWORKS)


def test_network_condition_has_upstream_reasons() -> None:
    assert [(condition_for(there)["status"], condition_for(there)["reason"]) for there in (True, False)] == [
        ("False", "RouteCreated"),
        ("True", "NoRouteCreated"),
    ]
