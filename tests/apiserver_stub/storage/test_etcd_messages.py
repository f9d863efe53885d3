"""Rows, transactions and events in etcd, and the meaning of its errors."""

from typing import Any

import pytest

from apiserver_stub.storage.etcd import failures
from apiserver_stub.storage.etcd.client import EtcdServers, target_of
from apiserver_stub.storage.etcd.fate import can_be_sent_again, made_at
from apiserver_stub.storage.etcd.layout import Layout
from apiserver_stub.storage.etcd.transaction import outcome, transaction
from apiserver_stub.storage.etcd.watch import Responses
from apiserver_stub.storage.interface import Compare, RevisionConflict, Write
from controller_manager.common.api import errors
from controller_manager.common.transport.grpc import GrpcError

BODY = b'{"metadata":{"resourceVersion":"","name":"a"}}'
LAST = b'{"metadata":{"resourceVersion":"","name":"a"},"last":1}'
LAYOUT = Layout("/registry")


def stamped(data: bytes, revision: int) -> bytes:
    return data.replace(b'""', b'"%d"' % revision)


def event(key: bytes, revision: int, value: bytes = BODY, *, deleted: bool = False, before: bytes = b"") -> Any:
    kv = {"key": key, "mod_revision": revision, **({} if deleted else {"value": value})}
    return {"kv": kv, **({"type": 1} if deleted else {}), **({"prev_kv": {"value": before}} if before else {})}


def test_row_keys_contain_prefix_and_resource() -> None:
    assert LAYOUT.key("deployments.apps", "default/web") == b"/registry/deployments.apps/default/web"
    assert LAYOUT.row(b"/registry/deployments.apps/default/web") == ("deployments.apps", "default/web")
    assert LAYOUT.row(LAYOUT.key("", "revision")) == ("", "revision")
    assert LAYOUT.row(LAYOUT.key("pods", "\udc80")) == ("pods", "\udc80")
    assert [LAYOUT.row(key) for key in (LAYOUT.deleted, LAYOUT.progress, LAYOUT.health)] == [None] * 3
    start, end = LAYOUT.bounds("events")
    assert start < LAYOUT.key("events", "a/b") < end < LAYOUT.key("events2", "")
    assert not start <= LAYOUT.key("events.events.k8s.io", "a/b") < end
    assert LAYOUT.start < start < LAYOUT.end
    assert Layout("cluster/one/").key("pods", "a") == b"/cluster/one/pods/a"


def test_transaction_compares_every_row_and_reads_conflicts() -> None:
    writes = [
        Write("pods", "a", 7, BODY),
        Write("pods", "b", 0, BODY, ttl=60),
        Write("pods", "c", 9, LAST, deleted=True),
    ]
    made = transaction(LAYOUT, writes, [Compare("namespaces", "n", 3)], {60: 5})
    assert [one["mod_revision"] for one in made["compare"]] == [7, 0, 9, 3]
    put, leased, deleted, kept = made["success"]
    assert put == {"request_put": {"key": b"/registry/pods/a", "value": BODY}}
    assert leased["request_put"]["lease"] == 5
    assert deleted == {"request_delete_range": {"key": b"/registry/pods/c"}}
    assert kept["request_put"]["key"] == LAYOUT.deleted
    assert len(made["failure"]) == 4
    assert len(transaction(LAYOUT, writes, (), {60: 5}, final=False)["success"]) == 3


def test_delete_of_new_row_is_only_compared() -> None:
    made = transaction(LAYOUT, [Write("pods", "a", 0, LAST, deleted=True)], (), {})
    assert made["compare"] == [{"result": 2, "target": 0, "version": 0, "key": b"/registry/pods/a"}]


def test_first_conflicting_row_is_reported() -> None:
    writes, compares = [Write("pods", "a", 7, BODY), Write("pods", "b", 0, BODY)], [Compare("namespaces", "n", 3)]
    found = [{"response_range": {"kvs": [{"mod_revision": number}]} if number else {}} for number in (7, 8, 4)]
    with pytest.raises(RevisionConflict) as refused:
        outcome(LAYOUT, {"header": {"revision": 20}, "responses": found}, writes, compares)
    assert (refused.value.key, refused.value.current, refused.value.revision) == ("b", 8, 20)
    assert outcome(LAYOUT, {"header": {"revision": 21}, "succeeded": True}, writes, compares) == 21


def test_deletion_event_carries_final_state() -> None:
    key = LAYOUT.key("pods", "a")
    value = LAYOUT.final([Write("pods", "a", 4, LAST, deleted=True), Write("pods", "b", 0, BODY)])
    events = [
        event(key, 5, deleted=True, before=BODY),
        event(LAYOUT.deleted, 5, value),
        event(key, 6),
        event(key, 7, deleted=True, before=BODY),
        event(key, 9, deleted=True),
    ]
    kept, put, other, lost = LAYOUT.records_of(events, 1.0)
    assert (kept.data, kept.deleted, kept.revision) == (stamped(LAST, 5), True, 5)
    assert (put.data, put.deleted) == (stamped(BODY, 6), False)
    assert (other.data, other.deleted, other.decode_error) == (stamped(BODY, 7), True, "")
    assert (lost.data, lost.deleted) == (b"", True)
    assert "compacted" in lost.decode_error
    assert LAYOUT.records_of([event(LAYOUT.deleted, 8, b"of others"), event(LAYOUT.progress, 9)], 1.0) == []


def test_fragments_of_response_are_joined() -> None:
    responses = Responses(LAYOUT)
    one, other = event(LAYOUT.key("pods", "a"), 5), event(LAYOUT.key("pods", "b"), 5)
    assert responses.take({"header": {"revision": 5}, "created": True}, 0.0) == ((), 0)
    assert responses.take({"header": {"revision": 6}, "events": [one], "fragment": True}, 0.0) == ((), 0)
    records, revision = responses.take({"header": {"revision": 6}, "events": [other]}, 0.0)
    assert ([record.key for record in records], revision) == (["a", "b"], 5)
    assert responses.take({"header": {"revision": 9}}, 0.0) == ((), 9)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://127.0.0.1:2379", ("127.0.0.1", 2379)),
        ("https://[::1]:4001/", ("::1", 4001)),
        ("etcd.example", ("etcd.example", 2379)),
        ("unix:///run/etcd.sock", ("/run/etcd.sock", 0)),
    ],
)
def test_member_urls_are_parsed(url: str, target: tuple[str, int]) -> None:
    assert target_of(url) == target


@pytest.mark.parametrize("urls", [(), ("ftp://a",), ("http://",), ("http://a/b",)])
def test_invalid_member_url_is_rejected(urls: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="--etcd-servers"):
        EtcdServers(urls)


@pytest.mark.parametrize(
    ("code", "message", "known", "refused"),
    [
        ("UNAVAILABLE", "etcdserver: no leader", True, errors.ServiceUnavailable),
        ("UNAVAILABLE", "etcdserver: leader changed", True, errors.ServiceUnavailable),
        ("UNAVAILABLE", "Socket closed", False, errors.ServiceUnavailable),
        ("UNAVAILABLE", "etcdserver: request timed out", False, errors.ServiceUnavailable),
        ("UNAVAILABLE", "etcdserver: server stopped", False, errors.ServiceUnavailable),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", False, errors.Timeout),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", True, errors.TooManyRequests),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", True, errors.ServiceUnavailable),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", True, errors.RequestEntityTooLarge),
        (
            "RESOURCE_EXHAUSTED",
            "grpc: received message larger than max (2097277 vs. 2097152)",
            True,
            errors.RequestEntityTooLarge,
        ),
        ("PERMISSION_DENIED", "etcdserver: permission denied", True, errors.InternalError),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", True, errors.InternalError),
    ],
)
def test_etcd_errors_map_to_api_errors(code: str, message: str, known: bool, refused: type[errors.ApiError]) -> None:
    failure = GrpcError(code, message)
    assert failures.is_known(failure) is known
    assert type(failures.refusal(failure)) is refused
    assert type(failures.unknown(failure)) is errors.Timeout


def test_unsent_request_has_no_effect() -> None:
    failure = GrpcError("UNAVAILABLE", "failed to connect to 127.0.0.1:2379: refused", unsent=True)
    assert failures.is_known(failure)
    assert failures.was_not_begun(failure)
    assert type(failures.refusal(failure)) is errors.ServiceUnavailable


def state(data: bytes, revision: int, created: int = 3) -> Any:
    return {"value": data, "mod_revision": revision, "create_revision": created}


OTHER = b'{"metadata":{"resourceVersion":""},"of":"others"}'
CHANGE, CREATION = Write("pods", "a", 7, BODY), Write("pods", "a", 0, BODY)
DELETION = Write("pods", "a", 7, LAST, deleted=True)
NOTED = {"value": LAYOUT.final([DELETION]), "mod_revision": 9}


@pytest.mark.parametrize(
    ("write", "now", "before", "noted", "made"),
    [
        (CHANGE, state(BODY, 8), state(OTHER, 7), None, 8),
        (CHANGE, state(OTHER, 9), state(BODY, 8), None, 8),
        (CHANGE, state(OTHER, 9), state(OTHER, 7), None, 0),
        (CHANGE, state(OTHER, 9), state(OTHER, 8), None, None),
        (CHANGE, None, None, None, None),
        (CREATION, state(BODY, 8, 8), None, None, 8),
        (CREATION, state(OTHER, 9, 8), state(BODY, 8, 8), None, 8),
        (CREATION, state(OTHER, 9, 8), state(OTHER, 8, 8), None, None),
        (CREATION, None, None, None, None),
        (DELETION, None, None, NOTED, 9),
        (DELETION, None, None, {**NOTED, "value": LAYOUT.final([CHANGE])}, None),
        (DELETION, None, None, None, None),
        (DELETION, state(OTHER, 9), None, NOTED, 0),
        (DELETION, state(OTHER, 9, 9), None, NOTED, None),
    ],
)
def test_row_state_decides_if_write_was_made(write: Write, now: Any, before: Any, noted: Any, made: int | None) -> None:
    assert made_at(LAYOUT, write, now, before, noted) == made


def test_only_creates_and_deletes_can_be_sent_again() -> None:
    assert can_be_sent_again([CREATION, CHANGE])
    assert can_be_sent_again([DELETION])
    assert not can_be_sent_again([CREATION, Write("pods", "b", 0, BODY)])
