"""The number of seats that requests take."""

import pytest

from apiserver_stub.flow_control.seat_requests import ONE_SEAT, WorkEstimate
from apiserver_stub.flow_control.work_estimates import WatchCounts, is_write, list_estimate, write_estimate
from apiserver_stub.request.request_info import RequestInfo

PODS = "/api/v1/pods"


@pytest.mark.parametrize(
    ("path", "query", "count", "size", "most", "seats"),
    [
        (PODS, {}, 0, 0, 0, 1),
        (PODS, {}, 100, 1000, 0, 1),
        (PODS, {}, 101, 1000, 0, 2),
        (PODS, {}, 1000, 1000, 0, 10),
        (PODS, {}, 1_000_000, 1000, 0, 10),  # it is sent in chunks
        (PODS, {}, 1_000_000, 1000, 4, 4),
        (PODS, {"limit": "500"}, 1000, 1000, 0, 5),
        (PODS, {"limit": "0"}, 1000, 1000, 0, 10),
        (PODS, {"limit": "many"}, 1000, 1000, 0, 10),
        (PODS, {"labelSelector": "a=b"}, 1000, 1000, 0, 10),
        (PODS, {"fieldSelector": "metadata.name=a"}, 1000, 1000, 0, 1),
        (PODS, {"fieldSelector": "metadata.name=a"}, 1000, 300_000, 0, 3),
        (PODS, {"fieldSelector": "metadata.name!=a"}, 1000, 1000, 0, 10),
        (PODS, {"fieldSelector": "=,=\\"}, 1000, 1000, 0, 10),
        (PODS, {"watch": "true"}, 1000, 1000, 0, 10),
        (PODS, {"watch": "true", "resourceVersion": "0"}, 1000, 1000, 0, 10),
        (PODS, {"watch": "true", "resourceVersion": "7"}, 1000, 1000, 0, 1),
        (PODS, {"watch": "true", "resourceVersion": "7", "sendInitialEvents": "true"}, 1000, 1000, 0, 10),
    ],
)
def test_lists_take_a_seat_for_each_100_kb(
    path: str, query: dict[str, str], count: int, size: int, most: int, seats: int
) -> None:
    info = RequestInfo.of("GET", path, query)
    assert list_estimate(info, query, lambda _: (count, size), most).seats == seats


def test_list_of_aggregated_resource_takes_one_seat() -> None:
    assert list_estimate(RequestInfo.of("GET", "/apis/x/v1/y", {}), {}, lambda _: None, 0) is ONE_SEAT


@pytest.mark.parametrize(
    ("watches", "most", "estimate"),
    [
        (0, 0, ONE_SEAT),
        (9, 0, ONE_SEAT),
        (10, 0, WorkEstimate(1, 1, 0.005)),
        (25, 0, WorkEstimate(1, 3, 0.005)),
        (1000, 0, WorkEstimate(1, 10, 0.05)),
        (1000, 4, WorkEstimate(1, 4, 0.125)),
        (1000, 50, WorkEstimate(1, 10, 0.05)),
    ],
)
def test_writes_hold_seats_for_watch_events(watches: int, most: int, estimate: WorkEstimate) -> None:
    assert write_estimate(watches, most) == estimate


def test_write_requests_are_recognized() -> None:
    paths = {
        ("POST", "/api/v1/namespaces/a/pods"): True,
        ("DELETE", "/api/v1/namespaces/a/pods/x"): True,
        ("DELETE", "/api/v1/namespaces/a/pods"): False,
        ("GET", "/api/v1/namespaces/a/pods"): False,
        ("POST", "/api/v1/namespaces/a/serviceaccounts/x/token"): False,
        ("POST", "/api/v1/namespaces/a/serviceaccounts"): True,
    }
    assert {key: is_write(RequestInfo.of(*key, {})) for key in paths} == paths


def test_watches_are_counted_by_namespace_and_name() -> None:
    counts = WatchCounts()

    def opened(path: str, **query: str) -> object:
        return counts.opened(RequestInfo.of("GET", path, {"watch": "1", **query}), query)

    def interested(method: str, path: str) -> int:
        return counts.interested(RequestInfo.of(method, path, {}))

    everywhere = [opened("/api/v1/pods") for _ in range(3)]
    opened("/api/v1/namespaces/a/pods")
    opened("/api/v1/namespaces/a/pods", fieldSelector="metadata.name=x")
    opened("/api/v1/namespaces/b/pods")
    opened("/api/v1/nodes")
    assert opened("/api/v1/pods", fieldSelector="spec.nodeName=n") is None, "few events are of one node's pods"
    assert interested("POST", "/api/v1/namespaces/a/pods") == 4
    assert interested("PUT", "/api/v1/namespaces/a/pods/x") == 5
    assert interested("PUT", "/api/v1/namespaces/c/pods/x") == 3
    assert interested("PUT", "/apis/apps/v1/namespaces/a/deployments/x") == 0
    for one in everywhere:
        assert isinstance(one, tuple)
        counts.closed(one)
    assert interested("PUT", "/api/v1/namespaces/a/pods/x") == 2
