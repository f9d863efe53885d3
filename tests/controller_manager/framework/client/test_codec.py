"""Line splitting, versions of responses, and dropped managed fields."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_manager.common.api.core import PODS, PodTemplateSpec
from controller_manager.common.api.model import EMPTY_RAW, Object
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.transport.transport import TransportError
from controller_manager.framework.client.codec import Codec, Lines, WriteResult, deletion


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\n\n", b"c\nd", b"", b"e" * 50]), max_size=40))
def test_lines_are_joined_across_chunks(chunks: list[bytes]) -> None:
    lines, whole = Lines(), b"".join(chunks)
    got = [line for chunk in chunks for line in lines.feed(chunk)]
    *complete, rest = whole.split(b"\n")
    assert got == [line for line in complete if line]
    assert lines.unfinished == bool(rest)


def test_line_length_is_bounded() -> None:
    lines = Lines(longest=10)
    lines.feed(b"12345")
    lines.feed(b"6789012345\n1234567890")
    with pytest.raises(TransportError, match="longer than 10 bytes"):
        lines.feed(b"1")


@pytest.mark.parametrize(
    ("body", "version", "gone"),
    [
        (b'{"kind":"Pod","metadata":{"resourceVersion":"5"}}', "5", ""),
        (b'{"kind":"Status","metadata":{"resourceVersion":"5"},"details":{"uid":"u"}}', "", "u"),
        (b'{"kind":"Status","metadata":{}}', "", ""),
        (b'{"kind":"Pod"}', "", ""),
        (b"", "", ""),
        (b"[]", "", ""),
    ],
)
def test_deletion_result_from_response(body: bytes, version: str, gone: str) -> None:
    key = Key("a", "b")
    assert deletion(PODS, key, body) == WriteResult(PODS, key, version, gone)


def test_list_items_own_their_bytes() -> None:
    codec = Codec(PODS)
    body = b'{"items":[{"metadata":{"name":"a"}}]}'
    _, joined, spans = codec.parse(body)
    [pod] = codec.items(joined, spans)
    assert type(pod.raw) is bytes
    assert pod.raw == b'{"metadata":{"name":"a"}}'


class Team(Object):
    """An object with a pod template."""

    template: PodTemplateSpec = PodTemplateSpec()


TEAMS = Resource("example.com", "v1", "teams", "Team", True, Team)


@pytest.mark.parametrize(
    "meta", [b'"name":"a"', b'"name":"a","managedFields":[{}]', b'"managedFields":[{}],"name":"a"']
)
def test_raw_parts_of_items_own_their_bytes(meta: bytes) -> None:
    """A view of the response would keep the whole response in memory."""
    codec = Codec(TEAMS)
    item = b'{"metadata":{%s},"template":{"spec":{"odd": 1.0}}}' % meta
    body = b"".join((b"[", item, b"]"))
    before = sys.getrefcount(body)
    [team] = codec.items(body, ((1, len(body) - 1),))
    assert sys.getrefcount(body) == before
    assert bytes(team.template.spec) == b'{"odd": 1.0}'
    assert team.raw == item.replace(b',"managedFields":[{}]', b"")
    assert team.metadata.managed_fields is EMPTY_RAW


RECORD = [{"manager": "a}],", "fieldsV1": {"f:data": {"f:}],": {}, 'k:{"name":"]"}': {".": {}}}}}]


@pytest.mark.parametrize(
    "tree",
    [
        {"kind": "A", "metadata": {"name": "a", "managedFields": RECORD}, "spec": {"b": 1}},
        {"metadata": {"name": "a", "managedFields": RECORD, "uid": "u"}, "spec": {"managedFields": RECORD}},
        {"metadata": {"annotations": {"a": '{"managedFields":[]}'}, "managedFields": None}},
    ],
)
def test_managed_fields_are_dropped(tree: dict[str, Any]) -> None:
    data = json.dumps(tree, separators=(",", ":")).encode()
    del tree["metadata"]["managedFields"]
    pod = Codec(PODS).one(data)
    assert json.loads(pod.raw) == tree
    assert bytes(pod.metadata.managed_fields) == b""


@pytest.mark.parametrize(
    "tree",
    [
        {"metadata": {"name": "a"}, "spec": {"c": 1, "managedFields": RECORD}},
        {"spec": {"metadata": {"a": 1, "managedFields": RECORD}}, "metadata": {"name": "a", "managedFields": RECORD}},
        {"metadata": {"managedFields": RECORD}},
        {"a": 1, "managedFields": None},
        {"a": '"metadata":{', "b": 1, "managedFields": RECORD, "metadata": {"name": "a", "managedFields": RECORD}},
    ],
)
def test_managed_fields_elsewhere_are_kept(tree: dict[str, Any]) -> None:
    data = json.dumps(tree, separators=(",", ":")).encode()
    assert Codec(PODS).one(data).raw == data
