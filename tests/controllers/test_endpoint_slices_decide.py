"""Wanted endpoint slices of a service, from its pods, their nodes and the existing slices."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.core import Pod, Service
from controller_manager.common.api.discovery import Endpoint, EndpointSlice
from controllers.endpoint_slices import decide as made
from controllers.endpoint_slices.zones import NO_NODE_INFORMATION, Refused
from controllers.shared.pods import HEADLESS, TRIGGER_TIME

ZONES = {"n1": "a", "n2": "b", "n3": ""}


def service(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Service:
    meta = {"namespace": "ns", "name": "web", "uid": "uid-web", "creationTimestamp": "2026-01-01T00:00:00Z"}
    tree = {
        "metadata": {**meta, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {
            "selector": {"app": "web"},
            "clusterIP": "10.0.0.5",
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80}],
            **spec,
        },
    }
    return msgspec.convert(tree, Service)


def pod(name: str, node: str = "n1", ready: bool = True, deleted: bool = False, **fields: Any) -> Pod:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": f"2026-01-01T00:01:{len(name):02}Z"}
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
    metadata |= {"deletionTimestamp": "2026-01-01T00:01:00Z"} if deleted else {}
    status = {"podIPs": [{"ip": f"10.1.0.{len(name)}"}], "phase": "Running", "conditions": [condition]}
    status |= fields.pop("status", {})
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node, **fields}, "status": status}, Pod)


def decide(service: Service, pods: list[Pod], *current: EndpointSlice, limit: int = 100) -> made.SliceDecision:
    return made.decide(service, pods, ZONES.get, current, limit, lambda: {"a": 0.5, "b": 0.5})


def existing_slices(decision: made.SliceDecision) -> list[EndpointSlice]:
    """Return the slices that a decision creates."""
    names = (f"web-{number}" for number in range(100))
    return [
        msgspec.structs.replace(slice_, metadata=msgspec.structs.replace(slice_.metadata, name=name))
        for name, slice_ in zip(names, decision.writes.create, strict=False)
    ]


def endpoints(decision: made.SliceDecision) -> list[Endpoint]:
    return [endpoint for draft in decision.arrangement.drafts for endpoint in draft.endpoints]


DUAL = {"ipFamilies": ["IPv6", "IPv4"]}
BOTH = {"podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}


@pytest.mark.parametrize(
    ("spec", "pods", "expected"),
    [
        pytest.param({}, [], [("IPv4", [])], id="no pods"),
        pytest.param({}, [pod("a")], [("IPv4", ["10.1.0.1"])], id="a pod"),
        pytest.param({}, [pod("a", status={"podIPs": []})], [("IPv4", [])], id="a pod without address"),
        pytest.param({}, [pod("a", status={"podIPs": [], "podIP": "10.1.0.9"})], [("IPv4", ["10.1.0.9"])], id="podIP"),
        pytest.param({}, [pod("a", status={"phase": "Failed"})], [("IPv4", [])], id="a failed pod"),
        pytest.param({}, [pod("a", status={"phase": "Succeeded"})], [("IPv4", [])], id="a finished pod"),
        pytest.param({}, [pod("a", status={"phase": "Pending"})], [("IPv4", ["10.1.0.1"])], id="a pod that starts"),
        pytest.param({}, [pod("a", node="gone")], [("IPv4", [])], id="an unknown node"),
        pytest.param({}, [pod("a", node="")], [("IPv4", ["10.1.0.1"])], id="no node"),
        pytest.param(
            {"publishNotReadyAddresses": True},
            [pod("a", node="gone")],
            [("IPv4", ["10.1.0.1"])],
            id="published though not ready",
        ),
        pytest.param(
            DUAL, [pod("a", status=BOTH)], [("IPv6", ["fd00::1"]), ("IPv4", ["10.1.0.1"])], id="both families"
        ),
        pytest.param(DUAL, [pod("a")], [("IPv4", ["10.1.0.1"]), ("IPv6", [])], id="both families, pods of one"),
        pytest.param(
            {"ipFamilies": [], "clusterIP": "fd00::5"},
            [pod("a", status=BOTH)],
            [("IPv6", ["fd00::1"])],
            id="by address",
        ),
        pytest.param(
            {"ipFamilies": [], "clusterIP": "None"},
            [pod("a", status=BOTH)],
            [("IPv4", ["10.1.0.1"]), ("IPv6", ["fd00::1"])],
            id="headless, from before dual stack",
        ),
    ],
)
def test_addresses_by_ip_families(spec: dict[str, Any], pods: list[Pod], expected: list[tuple[str, list[str]]]) -> None:
    drafts = decide(service(**spec), pods).arrangement.drafts
    assert [(d.group.family, [e.addresses[0] for e in d.endpoints]) for d in drafts] == expected


@pytest.mark.parametrize(
    ("published", "ready", "deleted", "expected"),
    [
        (False, True, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (False, True, True, (False, True, True)),
        (False, False, True, (False, False, True)),
        (True, False, False, (True, False, False)),
        (True, True, True, (True, True, True)),
    ],
)
def test_endpoint_conditions_by_readiness_and_deletion(
    published: bool, ready: bool, deleted: bool, expected: tuple[bool, bool, bool]
) -> None:
    decision = decide(service(publishNotReadyAddresses=published), [pod("a", ready=ready, deleted=deleted)])
    (found,) = [e.conditions for e in endpoints(decision)]
    assert (found.ready, found.serving, found.terminating) == expected


HTTP = {"containers": [{"ports": [{"name": "web", "containerPort": 8080}]}]}


@pytest.mark.parametrize(
    ("ports", "spec", "expected"),
    [
        pytest.param([{"name": "h", "port": 80}], {}, [("h", 80, "TCP")], id="the same port"),
        pytest.param([{"name": "h", "port": 80, "targetPort": 81}], {}, [("h", 81, "TCP")], id="a number"),
        pytest.param([{"name": "h", "port": 80, "targetPort": "web"}], HTTP, [("h", 8080, "TCP")], id="a name"),
        pytest.param([{"name": "h", "port": 80, "targetPort": "web"}], {}, [], id="an unknown name"),
        pytest.param([{"port": 53, "protocol": "UDP"}], {}, [("", 53, "UDP")], id="without a name"),
        pytest.param([], {}, [], id="no ports"),
    ],
)
def test_port_numbers_by_target_port(
    ports: list[dict[str, Any]], spec: dict[str, Any], expected: list[tuple[str, int, str]]
) -> None:
    (slice_,) = decide(service(ports=ports), [pod("a", **spec)]).writes.create
    assert [(p.name, p.port, p.protocol) for p in slice_.ports or ()] == expected
    assert len(slice_.endpoints or ()) == 1


def test_endpoint_contains_node_zone_hostname_and_target() -> None:
    named = pod("a", node="n2", hostname="h", subdomain="web")
    (found,) = endpoints(decide(service(), [named]))
    assert (found.node_name, found.zone, found.hostname) == ("n2", "b", "h")
    assert found.target_ref is not None
    assert (found.target_ref.kind, found.target_ref.namespace, found.target_ref.name, found.target_ref.uid) == (
        *("Pod", "ns"),
        *("a", "uid-a"),
    )
    (other,) = endpoints(decide(service(), [pod("a", node="n3", hostname="h", subdomain="other")]))
    assert (other.zone, other.hostname) == (None, None)


@pytest.mark.parametrize(
    ("labels", "spec", "expected"),
    [
        ({}, {}, {}),
        ({"a": "b", HEADLESS: "", made.SERVICE_NAME: "x", made.MANAGED_BY: "y"}, {}, {"a": "b"}),
        ({"a": "b"}, {"clusterIP": "None"}, {"a": "b", HEADLESS: ""}),
    ],
)
def test_slice_labels_from_service(labels: dict[str, str], spec: dict[str, Any], expected: Mapping[str, str]) -> None:
    (slice_,) = decide(service(labels=labels, **spec), []).writes.create
    assert slice_.metadata.labels == {**expected, made.SERVICE_NAME: "web", made.MANAGED_BY: made.MANAGER}


def test_unchanged_pods_write_nothing_but_changed_labels_do() -> None:
    pods = [pod("a"), pod("bb")]
    current = existing_slices(decide(service(), pods))
    assert decide(service(), pods[::-1], *current).writes.size == 0
    (written,) = decide(service(labels={"x": "y"}), pods, *current).writes.update
    assert (written.metadata.labels or {})["x"] == "y"
    assert written.endpoints == current[0].endpoints


def test_trigger_time_is_the_earliest_change() -> None:
    first = decide(service(), [pod("a")])
    (current,) = existing_slices(first)
    assert (current.metadata.annotations or {})[TRIGGER_TIME] == "2026-01-01T00:00:00Z", "the time of the service"
    (second,) = decide(service(), [pod("a"), pod("ccc"), pod("bb")], current).writes.update
    assert (second.metadata.annotations or {})[TRIGGER_TIME] == "2026-01-01T00:01:02Z"
    (third,) = decide(service(), [pod("a"), pod("ccc")], second).writes.update
    assert TRIGGER_TIME not in (third.metadata.annotations or {})


@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        pytest.param(True, None, id="ready as before"),
        pytest.param(False, "2026-01-01T00:01:01Z", id="readiness changed"),
    ],
)
def test_trigger_time_of_stopping_pod_is_not_its_ready_time(ready: bool, expected: str | None) -> None:
    current = existing_slices(decide(service(), [pod("a"), pod("bb")]))
    (written,) = decide(service(), [pod("a", ready=ready, deleted=True), pod("bb")], *current).writes.update
    assert (written.metadata.annotations or {}).get(TRIGGER_TIME) == expected


def test_slices_of_old_service_or_family_are_deleted() -> None:
    current = existing_slices(decide(service(**DUAL), [pod("a", status=BOTH)]))
    assert {s.address_type for s in decide(service(), [pod("a")], *current).writes.delete} == {"IPv6"}
    successor = msgspec.structs.replace(service(), metadata=msgspec.structs.replace(service().metadata, uid="other"))
    decision = decide(successor, [pod("a")], *current)
    assert len(decision.writes.delete) == 2
    assert [s.metadata.owner_references[0].uid for s in decision.writes.create] == ["other"]


AUTO = {made.TOPOLOGY_MODE: "Auto"}


@pytest.mark.parametrize(
    ("annotations", "wanted", "expected"),
    [
        pytest.param({}, None, "", id="nothing"),
        pytest.param({}, "PreferClose", "PreferClose", id="the field"),
        pytest.param({}, "Elsewhere", "", id="an unknown value"),
        pytest.param(AUTO, "PreferClose", "", id="the annotation has precedence"),
        pytest.param({made.TOPOLOGY_MODE: "Disabled"}, "PreferSameNode", "PreferSameNode", id="the gate is off"),
    ],
)
def test_traffic_distribution_from_annotation_or_spec(
    annotations: dict[str, str], wanted: str | None, expected: str
) -> None:
    assert made.distribution(service(annotations, trafficDistribution=wanted)) == expected


@pytest.mark.parametrize(
    ("annotations", "follows"),
    [
        ({}, False),
        ({made.TOPOLOGY_MODE: "Auto"}, True),
        ({made.TOPOLOGY_MODE: "auto"}, True),
        ({made.TOPOLOGY_MODE: "AUTO"}, False),
        ({"service.kubernetes.io/topology-aware-hints": "auto"}, True),
        ({"service.kubernetes.io/topology-aware-hints": "disabled", **AUTO}, False),
    ],
)
def test_topology_mode_by_annotation(annotations: dict[str, str], follows: bool) -> None:
    assert made.follows_zones(service(annotations)) is follows


def test_zone_hints_are_set_and_removed() -> None:
    pods = [pod("a"), pod("bb"), pod("ccc"), pod("dddd", node="n2")]
    decision = decide(service(AUTO), pods)
    assert decision.hints == {"IPv4": ""}
    assert sorted(zone.name for e in endpoints(decision) if e.hints for zone in e.hints.for_zones) == [*"aabb"]
    current = existing_slices(decision)
    assert decide(service(AUTO), pods, *current).writes.size == 0

    def refuse() -> Mapping[str, float]:
        raise Refused(NO_NODE_INFORMATION)

    without = made.decide(service(AUTO), pods, ZONES.get, current, 100, refuse)
    assert without.hints == {"IPv4": NO_NODE_INFORMATION}
    assert [e.hints for s in without.writes.update for e in s.endpoints or ()] == [None] * 4
    assert len(decide(service(), pods, *current).writes.update) == 1, "the annotation is gone, and so are hints"


def test_new_endpoint_rewrites_one_slice_only() -> None:
    pods = [pod("a" * length, node="n1" if length % 2 else "n2") for length in range(1, 25)]
    current = existing_slices(decide(service(AUTO), pods, limit=10))
    decision = decide(service(AUTO), [*pods, pod("a" * 25)], *current, limit=10)
    assert decision.writes.size == 1
    assert decision.hints == {"IPv4": ""}
