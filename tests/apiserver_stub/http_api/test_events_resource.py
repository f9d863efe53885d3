"""The Event resource of events.k8s.io/v1: its fields, limits and endpoints."""

from typing import Any

import pytest

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CORE = "/api/v1/namespaces/default/events"


def event(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "action": "Binding",
        "reason": "Scheduled",
        "note": "it was placed",
        "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reportingController": "example.org/scheduler",
        "reportingInstance": "scheduler-1",
        **more,
    }


async def test_event_is_stored_with_all_fields(api: Any) -> None:
    """Event resource: all fields, with the microseconds of MicroTime; an EventList holds it."""
    series = {"count": 3, "lastObservedTime": "2026-01-02T03:04:06.000001Z"}
    related = {"kind": "Node", "name": "n"}
    body = event(series=series, related=related)
    made = await api.post(EVENTS, body)
    assert made.status == 201
    assert {name: made.tree[name] for name in body if name != "metadata"} == {
        name: value for name, value in body.items() if name != "metadata"
    }
    listed = (await api.get(EVENTS)).tree
    bare = {name: value for name, value in made.tree.items() if name not in ("apiVersion", "kind")}
    assert (listed["kind"], listed["items"]) == ("EventList", [bare])


async def test_both_groups_show_the_same_event(api: Any) -> None:
    """Event resource: the deprecated fields are those of the core type."""
    await api.post(EVENTS, event())
    core = (await api.get(f"{CORE}/e")).tree
    assert (core["involvedObject"]["name"], core["message"], core["reportingComponent"]) == (
        "p",
        "it was placed",
        "example.org/scheduler",
    )
    old = {
        "metadata": {"name": "old"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Pulled",
        "message": "done",
        "type": "Normal",
        "count": 4,
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:05:05Z",
        "source": {"component": "agent", "host": "n"},
    }
    assert (await api.post(CORE, old)).status == 201
    new = (await api.get(f"{EVENTS}/old")).tree
    assert (new["deprecatedCount"], new["deprecatedSource"], new["deprecatedFirstTimestamp"], new["note"]) == (
        4,
        {"component": "agent", "host": "n"},
        "2026-01-02T03:04:05Z",
        "done",
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"eventTime": None}, "eventTime"),
        ({"action": ""}, "action"),
        ({"action": "x" * 129}, "action"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 129}, "reason"),
        ({"note": "x" * 1025}, "message"),
        ({"type": "Loud"}, "type"),
        ({"type": ""}, "type"),
        ({"reportingController": ""}, "reportingController"),
        ({"reportingInstance": ""}, "reportingInstance"),
        ({"reportingInstance": "x" * 129}, "reportingInstance"),
        ({"series": {"count": 0, "lastObservedTime": "2026-01-02T03:04:06.000001Z"}}, "series.count"),
        ({"series": {"count": 2}}, "series.lastObservedTime"),
    ],
)
async def test_invalid_fields_are_rejected(api: Any, change: Any, field: str) -> None:
    """Event resource and Limits: required, non-empty for new events, at most 128 characters, at most 1 kB."""
    answer = await api.post(EVENTS, event(**change))
    assert (answer.status, answer.tree["reason"]) == (422, "Invalid")
    assert field in [cause["field"] for cause in answer.tree["details"]["causes"]]


@pytest.mark.parametrize("change", [{"action": "x" * 128}, {"reason": "x" * 128}, {"note": "x" * 1024}, {"note": ""}])
async def test_largest_allowed_values_are_accepted(api: Any, change: Any) -> None:
    """Limits: the largest allowed values."""
    assert (await api.post(EVENTS, event(**change))).status == 201


async def test_event_endpoints(api: Any) -> None:
    """Event endpoints: get, list in one and in all namespaces, update, patch, delete, deletecollection."""
    await api.post(EVENTS, event())
    read = (await api.get(f"{EVENTS}/e")).tree
    assert (await api.get("/apis/events.k8s.io/v1/events?limit=1")).names == ["e"]
    read["series"] = {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}
    assert (await api.put(f"{EVENTS}/e", read)).status == 200
    assert (await api.patch(f"{EVENTS}/e", {"series": {"count": 5}})).tree["series"]["count"] == 5
    assert (await api.delete(f"{EVENTS}/e")).tree["kind"] == "Status"
    await api.post(EVENTS, event())
    gone = await api.delete(EVENTS)
    assert (gone.status, gone.tree["kind"], gone.tree["status"]) == (200, "Status", "Success")
    assert (await api.get(EVENTS)).names == []
