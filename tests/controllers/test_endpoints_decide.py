"""Wanted Endpoints of a service, from its pods and the existing Endpoints."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.core import EndpointAddress, EndpointPort, Endpoints, EndpointSubset, Pod, Service
from controllers import endpoints as ep
from controllers.shared.pods import HEADLESS, TRIGGER_TIME


def service(**spec: Any) -> Service:
    tree = {
        "metadata": {"namespace": "ns", "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"selector": {"app": "web"}, "clusterIP": "10.0.0.5", "ports": [{"port": 80}], **spec},
    }
    return msgspec.convert(tree, Service)


def pod(name: str, ip: str = "", ready: bool = True, deleted: bool = False, **fields: Any) -> Pod:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": f"2026-01-01T00:00:{len(name):02}Z"}
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
    metadata |= {"deletionTimestamp": "2026-01-01T00:01:00Z"} if deleted else {}
    status = {"podIP": ip or f"10.1.0.{len(name)}", "phase": "Running", "conditions": [condition]}
    status |= fields.pop("status", {})
    return msgspec.convert({"metadata": metadata, "spec": fields, "status": status}, Pod)


def ips(subsets: tuple[EndpointSubset, ...]) -> list[tuple[list[str], list[str], list[int]]]:
    return [
        ([a.ip for a in s.addresses], [a.ip for a in s.not_ready_addresses], [p.port for p in s.ports]) for s in subsets
    ]


HTTP_8080 = {"containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]}
SIDECAR = {"initContainers": [{"restartPolicy": "Always", "ports": [{"name": "http", "containerPort": 9}]}]}
INIT = {"initContainers": [{"ports": [{"name": "http", "containerPort": 9}]}]}
NAMED = {"ports": [{"port": 80, "targetPort": "http"}]}


@pytest.mark.parametrize(
    ("spec", "pods", "expected"),
    [
        pytest.param({}, [], [], id="no pods"),
        pytest.param({}, [pod("a")], [(["10.1.0.1"], [], [80])], id="a ready pod"),
        pytest.param({}, [pod("a", ready=False)], [([], ["10.1.0.1"], [80])], id="a pod that is not ready"),
        pytest.param({}, [pod("bb"), pod("a")], [(["10.1.0.1", "10.1.0.2"], [], [80])], id="sorted by address"),
        pytest.param({}, [pod("a", deleted=True)], [], id="a pod being deleted"),
        pytest.param({}, [pod("a", status={"phase": "Succeeded"})], [], id="a finished pod"),
        pytest.param({}, [pod("a", status={"podIP": ""})], [], id="a pod without address"),
        pytest.param(
            {"publishNotReadyAddresses": True},
            [pod("a", ready=False), pod("bb", deleted=True)],
            [(["10.1.0.1", "10.1.0.2"], [], [80])],
            id="not ready, but published",
        ),
        pytest.param(
            {"publishNotReadyAddresses": True}, [pod("a", status={"phase": "Failed"})], [], id="failed, not published"
        ),
        pytest.param({"ports": [{"port": 80, "targetPort": 81}]}, [pod("a")], [(["10.1.0.1"], [], [81])], id="number"),
        pytest.param(NAMED, [pod("a", **HTTP_8080)], [(["10.1.0.1"], [], [8080])], id="port by name"),
        pytest.param(NAMED, [pod("a", **SIDECAR)], [(["10.1.0.1"], [], [9])], id="port of a sidecar"),
        pytest.param(NAMED, [pod("a", **INIT)], [], id="init containers offer no ports"),
        pytest.param(NAMED, [pod("a")], [], id="no port of that name"),
        pytest.param(
            {"ports": [{"port": 80, "targetPort": "http", "protocol": "UDP"}]},
            [pod("a", **HTTP_8080)],
            [],
            id="protocol",
        ),
        pytest.param(
            {"ports": [{"name": "h", "port": 80, "targetPort": "http"}, {"name": "m", "port": 90}]},
            [pod("a", **HTTP_8080), pod("bb")],
            [(["10.1.0.1"], [], [8080]), (["10.1.0.1", "10.1.0.2"], [], [90])],
            id="ports with different addresses are separate",
        ),
        pytest.param(
            {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]},
            [pod("a"), pod("bb", ready=False)],
            [(["10.1.0.1"], ["10.1.0.2"], [1, 2])],
            id="ports with the same addresses are joined",
        ),
        pytest.param({"clusterIP": "None", "ports": []}, [pod("a")], [(["10.1.0.1"], [], [])], id="headless, no ports"),
        pytest.param({"ports": []}, [pod("a")], [], id="no ports, not headless"),
        pytest.param(
            {"clusterIP": "fd00::1"},
            [pod("a", status={"podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::a"}]})],
            [(["fd00::a"], [], [80])],
            id="the family of the service",
        ),
        pytest.param({"ipFamilies": ["IPv6"]}, [pod("a")], [], id="no address of the family"),
    ],
)
def test_subsets_from_service_and_pods(spec: dict[str, Any], pods: list[Pod], expected: list[Any]) -> None:
    assert ips(ep.subsets_of(service(**spec), pods)) == expected


def test_hostname_requires_matching_subdomain() -> None:
    named = [pod("a", hostname="h", subdomain="web"), pod("bb", hostname="h", subdomain="other")]
    (subset,) = ep.subsets_of(service(), named)
    assert [a.hostname for a in subset.addresses] == ["h", ""]


def write(current: Endpoints, wanted: Endpoints | None) -> Endpoints:
    return current if wanted is None else wanted


def test_unchanged_endpoints_are_not_written() -> None:
    first = ep.desired(service(), [pod("a"), pod("bb")], None)
    assert first is not None
    assert ep.desired(service(), [pod("bb"), pod("a")], first) is None
    assert ep.desired(service(), [pod("a")], first) is not None


def test_labels_are_copied_from_service() -> None:
    labelled = msgspec.structs.replace(
        service(clusterIP="None"), metadata=msgspec.structs.replace(service().metadata, labels={"x": "y"})
    )
    made = ep.desired(labelled, [], None)
    assert made is not None
    assert made.metadata.labels == {"x": "y", HEADLESS: "", ep.MANAGED_BY: ep.MANAGER}


def test_annotations_of_others_are_preserved() -> None:
    there = ep.desired(service(), [pod("a")], None)
    assert there is not None
    kept = {**(there.metadata.annotations or {}), "mine": "1"}
    there = msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, annotations=kept))
    changed = ep.desired(service(), [pod("a", ready=False)], there)
    assert changed is not None
    assert (changed.metadata.annotations or {})["mine"] == "1"


def test_trigger_time_is_the_earliest_change() -> None:
    made = msgspec.structs.replace(service().metadata, creation_timestamp="2026-01-01T00:00:09Z")
    first = ep.desired(msgspec.structs.replace(service(), metadata=made), [pod("a")], None)
    assert first is not None
    assert (first.metadata.annotations or {})[TRIGGER_TIME] == "2026-01-01T00:00:09Z", "the pod is older than that"
    second = ep.desired(service(), [pod("a"), pod("ccc"), pod("bb")], first)
    assert second is not None
    assert (second.metadata.annotations or {})[TRIGGER_TIME] == "2026-01-01T00:00:02Z"
    third = ep.desired(service(), [pod("a"), pod("ccc")], second)
    assert third is not None
    assert TRIGGER_TIME not in (third.metadata.annotations or {})


def test_trigger_time_of_stopping_pod_is_not_its_ready_time() -> None:
    first = ep.desired(service(), [pod("a"), pod("bb")], None)
    stopped = ep.desired(service(), [pod("a", deleted=True), pod("bb")], first)
    assert stopped is not None
    assert TRIGGER_TIME not in (stopped.metadata.annotations or {})


def test_addresses_are_truncated_at_1000() -> None:
    ready = [pod(f"r{i}", ip=f"10.1.{i // 250}.{i % 250}") for i in range(900)]
    waiting = [pod(f"w{i}", ip=f"10.2.{i // 250}.{i % 250}", ready=False) for i in range(300)]
    made = ep.desired(service(), ready + waiting, None)
    assert made is not None
    (subset,) = made.subsets
    assert (len(subset.addresses), len(subset.not_ready_addresses)) == (900, 100)
    assert (made.metadata.annotations or {})[ep.OVER_CAPACITY] == "truncated"
    assert ep.desired(service(), ready + waiting, made) is None
    smaller = ep.desired(service(), ready, made)
    assert smaller is not None
    assert ep.OVER_CAPACITY not in (smaller.metadata.annotations or {})


sizes = st.lists(st.integers(0, 50), max_size=6)


@given(sizes, st.integers(0, 100))
def test_shares_sum_to_the_limit(parts: list[int], limit: int) -> None:
    shared = ep.shares(parts, limit)
    assert sum(shared) == min(sum(parts), limit)
    assert all(share <= size for share, size in zip(shared, parts, strict=True))


addresses = st.integers(1, 6).map(lambda n: EndpointAddress(ip=f"10.0.0.{n}"))
ports = st.integers(1, 4).map(lambda n: EndpointPort(port=n))
subset_lists = st.lists(
    st.builds(
        EndpointSubset,
        addresses=st.lists(addresses, max_size=4, unique=True).map(tuple),
        not_ready_addresses=st.lists(addresses, max_size=2, unique=True).map(tuple),
        ports=st.lists(ports, min_size=1, max_size=3, unique=True).map(tuple),
    ),
    max_size=4,
)


@given(subset_lists)
def test_canonical_form_is_unique(subsets: list[EndpointSubset]) -> None:
    once = ep.canonical(subsets)
    assert ep.canonical(once) == once
    assert ep.canonical(list(reversed(subsets))) == once


def test_port_without_protocol_defaults_to_tcp() -> None:
    web = service(ports=[{"port": 80, "targetPort": "http", "protocol": ""}])
    [subset] = ep.subsets_of(web, [pod("a", **HTTP_8080)])
    assert [(port.port, port.protocol) for port in subset.ports] == [(8080, "TCP")]
