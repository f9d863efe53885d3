"""Audit events: JSON and text forms, source addresses, and truncation."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.request.audit.events import (
    AuditStage,
    Level,
    event_list,
    legacy_line,
    truncated,
    without_managed_fields,
)
from apiserver_stub.request.audit.policy import Coverage
from apiserver_stub.request.audit.record import AuditRecord, micro_time, source_ips
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import User

AT = 1767323045.25
POD = "/api/v1/namespaces/a/pods/p"


def record(level: Level = Level.METADATA, path: str = POD, audit_id: str = "id", **headers: str) -> AuditRecord:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request("GET", path, headers=named, target=path, remote="127.0.0.1")
    found = AuditRecord(request, RequestInfo.of("GET", path, {}), audit_id, AT)
    found.coverage = Coverage(level)
    found.begin(User("ada", groups=("dev",)), "p")
    return found


def parsed_event(found: AuditRecord, stage: AuditStage = AuditStage.RESPONSE_COMPLETE) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(found.event(stage, AT + 2))
    return event


@pytest.mark.parametrize(
    ("forwarded", "real", "remote", "ips"),
    [
        ("", "", "", ()),
        ("", "", "127.0.0.1", ("127.0.0.1",)),
        ("1.2.3.4, nope,  ::1 ,1.2.3.4", "5.6.7.8", "127.0.0.1", ("1.2.3.4", "::1", "1.2.3.4", "5.6.7.8", "127.0.0.1")),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", ("127.0.0.1",)),
        ("2001:DB8:0::1,::ffff:9.8.7.6,010.1.2.3", "bad", "127.0.0.1",
         ("2001:db8::1", "9.8.7.6", "10.1.2.3", "127.0.0.1")),
        ("", "1.2.3.4", "1.2.3.4", ("1.2.3.4",)),
        ("1.2.3.4", "", "", ("1.2.3.4",)),
        ("fe80::1%eth0,300.1.1.1,1.2.3", "", "::1", ("::1",)),
    ],
)  # fmt: skip
def test_source_ips_are_those_of_proxies_then_client(
    forwarded: str, real: str, remote: str, ips: tuple[str, ...]
) -> None:
    headers = {"x-forwarded-for": forwarded, "x-real-ip": real}
    request = Request("GET", "/", headers={name: value for name, value in headers.items() if value}, remote=remote)
    assert source_ips(request) == ips


def test_only_first_forwarded_header_counts() -> None:
    repeated = {"x-forwarded-for": ("1.2.3.4", "5.6.7.8")}
    request = Request("GET", "/", headers={"x-forwarded-for": "1.2.3.4, 5.6.7.8"}, repeated=repeated)
    assert source_ips(request) == ("1.2.3.4",)


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        ("a" * 1024, "a" * 1024),
        ("a" * 1025, "a" * 1024 + "...TRUNCATED"),
        ("é" * 512, "é" * 512),
        ("é" * 600, "é" * 512 + "...TRUNCATED"),
    ],
)
def test_long_user_agent_is_truncated(agent: str, shown: str) -> None:
    assert parsed_event(record(user_agent=agent))["userAgent"] == shown


def test_invalid_utf8_is_replaced() -> None:
    found = record(path="/x\udcff", audit_id="i\udcfe", user_agent="\udce9")
    event = parsed_event(found)
    assert (event["auditID"], event["requestURI"], event["userAgent"]) == ("i\ufffd", "/x\ufffd", "\ufffd")


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_any_event_is_one_line_of_json(audit_id: str, agent: str, annotations: dict[str, str]) -> None:
    found = record(audit_id=audit_id, user_agent=agent)
    for key, value in annotations.items():
        found.annotate(key, value)
    line = found.event(AuditStage.RESPONSE_COMPLETE, AT)
    assert b"\n" not in line
    event = json.loads(line)
    assert event["auditID"] == audit_id.encode("utf-8", "replace").decode()
    assert event.get("annotations", {}).keys() == set(annotations)


@pytest.mark.parametrize("level", list(Level))
def test_objects_are_logged_only_at_their_level(level: Level) -> None:
    found = record(level)
    found.note_object({"name": "p", "uid": "u"}, lambda: b'{"sent":1}')
    if found.level >= Level.REQUEST_RESPONSE:
        found.response_object = b'{"answered":1}'
    event = parsed_event(found)
    assert ("requestObject" in event) is (level >= Level.REQUEST)
    assert ("responseObject" in event) is (level >= Level.REQUEST_RESPONSE)
    assert event["objectRef"]["uid"] == "u"


def test_credentials_are_not_logged() -> None:
    found = record(Level.REQUEST_RESPONSE, authorization="Bearer hush", cookie="hush")
    assert b"hush" not in found.event(AuditStage.RESPONSE_COMPLETE, AT)


def test_first_annotation_wins_and_needs_its_level() -> None:
    found = record(Level.METADATA)
    found.annotate("a", "first")
    found.annotate("a", "second")
    found.annotate("b", "of the body", Level.REQUEST)
    assert parsed_event(found)["annotations"] == {"a": "first"}


def test_latency_annotations_are_added_to_slow_requests() -> None:
    found = record()
    found.note_latency("etcd", 0.25)
    found.note_latency("etcd", 0.5)
    found.annotate_latency(AT + 0.4)
    assert "annotations" not in parsed_event(found)
    found.annotate_latency(found.received + 2)
    assert parsed_event(found)["annotations"] == {
        "apiserver.latency.k8s.io/etcd": "750ms",
        "apiserver.latency.k8s.io/total": "2s",
    }


def test_times_have_microseconds() -> None:
    assert micro_time(AT) == b"2026-01-02T03:04:05.250000Z"
    assert micro_time(0.5) == b"1970-01-01T00:00:00.500000Z"


def test_legacy_format_is_one_line_of_text() -> None:
    found = record(user_agent='kubectl "x"')
    assert legacy_line(found.event(AuditStage.REQUEST_RECEIVED, AT)) == (
        '2026-01-02T03:04:05.25Z AUDIT: id="id" stage="RequestReceived" ip="127.0.0.1" method="get" user="ada" '
        'groups="\\"dev\\"" as="<self>" asgroups="<lookup>" user-agent="kubectl \\"x\\"" namespace="a" '
        f'uri="{POD}" response="<deferred>"'
    )
    found.note_impersonation(User("bob", groups=("x", "y")))
    found.note_code(200)
    line = legacy_line(found.event(AuditStage.RESPONSE_COMPLETE, AT))
    assert 'as="bob" asgroups="\\"x\\",\\"y\\""' in line
    assert line.endswith('response="200"')


def test_event_list_items_have_no_type() -> None:
    found = json.loads(event_list([record().event(AuditStage.PANIC, AT)]))
    assert (found["kind"], found["apiVersion"], found["metadata"]) == ("EventList", "audit.k8s.io/v1", {})
    assert [(event.get("kind"), event["stage"]) for event in found["items"]] == [(None, "Panic")]


def test_truncated_event_has_annotation_and_no_objects() -> None:
    found = record(Level.REQUEST)
    found.note_document(lambda: b"[1,2]")
    event = json.loads(truncated(found.event(AuditStage.RESPONSE_COMPLETE, AT)))
    assert "requestObject" not in event
    assert event["annotations"] == {"audit.k8s.io/truncated": "true"}
    plain = record().event(AuditStage.RESPONSE_COMPLETE, AT)
    assert truncated(plain) == plain


@pytest.mark.parametrize(
    ("tree", "left"),
    [
        ({"metadata": {"name": "a", "managedFields": [1]}}, {"metadata": {"name": "a"}}),
        ({"items": [{"metadata": {"managedFields": [1]}}, 3]}, {"items": [{"metadata": {}}, 3]}),
        ({"rows": [{"object": {"metadata": {"managedFields": []}}}, {}]}, {"rows": [{"object": {"metadata": {}}}, {}]}),
        ({"metadata": 3, "items": 4, "rows": None}, {"metadata": 3, "items": 4, "rows": None}),
        ([{"metadata": {"managedFields": [1]}}], [{"metadata": {"managedFields": [1]}}]),
    ],
)
def test_managed_fields_can_be_omitted(tree: Any, left: Any) -> None:
    assert json.loads(without_managed_fields(json.dumps(tree).encode())) == left
