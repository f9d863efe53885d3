"""CBOR: examples of RFC 8949, values without JSON equivalent, and round trips."""

import json
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.encode import cbor
from apiserver_stub.encode import json as encode_json
from apiserver_stub.encode.body import decode_body, decode_document
from apiserver_stub.encode.representations import ListDocument
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.wire import Request

MARK = b"\xd9\xd9\xf7"

# RFC 8949, appendix A, without values that JSON lacks; times and bytes are decoded to their JSON text.
READ: list[tuple[str, Any]] = [
    ("00", 0), ("17", 23), ("1818", 24), ("1b000000e8d4a51000", 1000000000000), ("3903e7", -1000),
    ("f93c00", 1.0), ("fa47c35000", 100000.0), ("fb3ff199999999999a", 1.1), ("f90001", 5.960464477539063e-8),
    ("f4", False), ("f5", True), ("f6", None),
    ("c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
    ("c11a514b67b0", "2013-03-21T20:04:00Z"), ("c1fb41d452d9ec200000", "2013-03-21T20:04:00.5Z"),
    ("d74401020304", "01020304"), ("d64401020304", "AQIDBA=="), ("d545fbff010203", "-_8BAgM"),
    ("d818456449455446", "dIETF"),
    ("d82076687474703a2f2f7777772e6578616d706c652e636f6d", "http://www.example.com"),
    ("40", ""), ("4401020304", "\x01\x02\x03\x04"), ("62c3bc", "ü"), ("42c3bc", "ü"), ("64f0908591", "𐅑"),
    ("80", []), ("8301820203820405", [1, [2, 3], [4, 5]]), ("a0", {}), ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("a2416101416202", {"a": 1, "b": 2}), ("826161a161626163", ["a", {"b": "c"}]),
    ("5f42010243030405ff", "\x01\x02\x03\x04\x05"), ("7f657374726561646d696e67ff", "streaming"), ("9fff", []),
    ("83018202039f0405ff", [1, [2, 3], [4, 5]]), ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
    ("d81c82d81d0001", [0, 1]), ("d9010281 01".replace(" ", ""), [1]), ("d9d9f7a16161d9d9f7a0", {"a": {}}),
    ("d8256161", "a"), ("d9010461 61".replace(" ", ""), "a"),
]  # fmt: skip

REFUSED = {
    "1bffffffffffffffff": "a number beyond 64 bits", "3bffffffffffffffff": "likewise",
    "c249010000000000000000": "likewise", "c349010000000000000000": "likewise", "f97c00": "infinite",
    "f97e00": "no number", "fb7ff8000000000000": "no number",
    "f7": "undefined", "f0": "a simple value", "f8ff": "a simple value",
    "a201020304": "keys that are numbers", "a1f60a": "a key that is null", "a18001": "a key that is a list",
    "a2616101616102": "a key twice", "a2616101416102": "a key twice, as text and as bytes",
    "bf616101616102ff": "a key twice, of unknown number",
    "61ff": "no UTF-8", "41ff": "no UTF-8 either", "a141ff01": "a key that is no UTF-8",
    "": "nothing", "0000": "two values", "a0f6": "two values", "a161": "half a value", "9f01": "no end",
    "1c": "no head",
    "9bffffffffffffffff00": "a list too short", "5bffffffffffffffff00": "bytes too short",
    "c1f5": "a time that is a truth value", "c16161": "a time that is a text",
    "c1fb7e37e43c8800759c": "a time too late",
}  # fmt: skip


@pytest.mark.parametrize(("example", "value"), READ)
@pytest.mark.parametrize("mark", [b"", MARK])
def test_rfc_examples_are_decoded(mark: bytes, example: str, value: Any) -> None:
    found, duplicates = cbor.load(mark + bytes.fromhex(example))
    assert (found, type(found), duplicates) == (value, type(value), ())


@pytest.mark.parametrize("example", REFUSED, ids=REFUSED.values())
@pytest.mark.parametrize("mark", [b"", MARK])
def test_values_without_json_equivalent_are_rejected(mark: bytes, example: str) -> None:
    with pytest.raises(BadRequest, match="not valid CBOR"):
        cbor.load(mark + bytes.fromhex(example))


@pytest.mark.parametrize("deep", [b"\x81" * 100_000, b"\xa1\x61a" * 100_000, MARK * 100_000, b"\x9f" * 100_000])
def test_too_deep_value_is_rejected(deep: bytes) -> None:
    with pytest.raises(BadRequest):
        cbor.load(deep + b"\x00")


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_rejected(data: bytes) -> None:
    try:
        found, _ = cbor.load(data)
    except BadRequest:
        return
    json.dumps(found, allow_nan=False)


texts = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def is_object(tree: dict[str, Any]) -> bool:
    """Return whether the type of an object is text or missing: other types are never returned."""
    return all(isinstance(tree.get(name, ""), str) for name in ("apiVersion", "kind"))


@settings(max_examples=200)
@given(st.dictionaries(texts, values, max_size=4).filter(is_object))
def test_any_object_round_trips(tree: dict[str, Any]) -> None:
    written = cbor.dump(json.dumps(tree).encode())
    assert written.startswith(MARK)
    assert cbor.load(written) == (tree, ())


def test_integers_above_int64_become_floats() -> None:
    """JSON can hold them; for Go clients they are floats in any media type."""
    assert cbor.load(cbor.dump(b'{"a":18446744073709551615,"b":9223372036854775807}'))[0] == {
        "a": 2.0**64,
        "b": 2**63 - 1,
    }


def test_strings_are_written_as_byte_strings() -> None:
    assert cbor.dump(b'{"a":"b","c":[300,null]}') == MARK + bytes.fromhex("a2 4161 4162 4163 82 19012cf6")


BINARY = [
    ("v1", "Secret", ("data", "k")),
    ("v1", "ConfigMap", ("binaryData", "k")),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", ("spec", "request")),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", ("status", "certificate")),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", ("webhooks", "clientConfig", "caBundle")),
]


@pytest.mark.parametrize(("api_version", "kind", "path"), BINARY)
def test_base64_fields_are_written_as_bytes(api_version: str, kind: str, path: tuple[str, ...]) -> None:
    inner: Any = "/wAB"
    for name in reversed(path):
        inner = {name: [inner] if name == "webhooks" else inner}
    tree = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "/wAB"}, **inner}
    written = cbor.dump(json.dumps(tree).encode())
    assert written.count(b"\xd6\x43\xff\x00\x01") == 1, "tag 22 and three bytes, once"
    assert cbor.load(written)[0] == tree
    assert b"\xd6" not in cbor.dump(json.dumps({**tree, "kind": "Other"}).encode())


@pytest.mark.parametrize("count", [0, 1, 23, 24, 255, 256, 70_000])
def test_list_is_one_cbor_value(count: int, cached_rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_json, "MOST_VALUES", 3 * count + 10)
    pods = built_in().find("", "v1", "pods")
    assert pods is not None
    head = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
    objects = [b'{"n":%d}' % number for number in range(count)]
    pieces = list(cbor.pieces(ListDocument(head, pods, (), objects, cached_rows)))
    assert len(pieces) == count + 2
    assert cbor.load(b"".join(pieces))[0] == {**head, "items": [{"n": number} for number in range(count)]}


def test_watch_events_are_a_sequence() -> None:
    """API concepts, Headers and media types: one event per entry of the sequence."""
    data = cbor.event("ADDED", b'{"a":1}') + cbor.event("BOOKMARK", b"{}")
    assert data.startswith(MARK)
    first, second = data[: data.rindex(MARK + b"\xa2")], data[data.rindex(MARK + b"\xa2") :]
    assert cbor.load(first)[0] == {"type": "ADDED", "object": {"a": 1}}
    assert cbor.load(second)[0] == {"type": "BOOKMARK", "object": {}}


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("indefinite", [False, True])
def test_bodies_of_other_encoders_are_decoded(canonical: bool, indefinite: bool) -> None:
    tree = {"kind": "ConfigMap", "data": {"a": "b", "ü": "x" * 300}, "metadata": {"name": "x", "generation": 3}}
    data = cbor2.dumps(tree, canonical=canonical, indefinite_containers=indefinite)
    request = Request("POST", "/", headers={"content-type": "application/cbor"}, body=data)
    assert decode_body(request, "v1", "ConfigMap").tree == {**tree, "apiVersion": "v1"}
    assert decode_document("application/apply-patch+cbor", data).tree == tree


@pytest.mark.parametrize("data", [b"\x80", b"\xf6", b"\x01", b"\x61a"])
def test_body_must_be_an_object(data: bytes) -> None:
    with pytest.raises(BadRequest, match="not an object"):
        decode_document("application/cbor", data)
