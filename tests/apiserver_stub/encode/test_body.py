"""Request bodies: accepted and rejected ones, and duplicate fields."""

import json as plain_json
from typing import Any

import orjson
import pytest
import yaml as plain_yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.encode import cbor, json, yaml
from apiserver_stub.encode.body import decode_body, decode_document, decode_options
from controller_manager.common.api.errors import BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from controller_manager.common.api.protobuf import wire
from controller_manager.common.api.wire import Request


def request(body: bytes, content_type: str | None = None) -> Request:
    return Request("POST", "/", headers={"content-type": content_type} if content_type else {}, body=body)


def decode(body: bytes, content_type: str | None = None) -> dict[str, Any]:
    return decode_body(request(body, content_type), "v1", "ConfigMap").tree


@pytest.mark.parametrize("content_type", [None, "application/json", "Application/JSON; charset=utf-8"])
def test_missing_kind_and_version_are_filled_in(content_type: str | None) -> None:
    assert decode(b'{"data": {"a": "b"}}', content_type) == {
        "data": {"a": "b"}, "kind": "ConfigMap", "apiVersion": "v1",
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"null", b'"x"', b"{'a': 1}", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\xff"}',
     b'{"a": "\\ud800"}', b'{"a":' * 201 + b"1" + b"}" * 201, b"[" * 100_000,
     b'{"kind": "Secret"}', b'{"apiVersion": "v2"}', b'{"kind": ["ConfigMap"]}'],
)  # fmt: skip
def test_malformed_bodies_are_bad_requests(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(body)


def test_depth_is_limited_to_200() -> None:
    inner = json.DEEPEST - 1
    assert decode(b'{"a":' + b"[" * inner + b"]" * inner + b"}")
    with pytest.raises(BadRequest, match="200 levels"):
        decode(b'{"a":' + b"[" * (inner + 1) + b"]" * (inner + 1) + b"}")


@pytest.mark.parametrize(("opened", "closed", "empty"), [(b"[", b"]", b""), (b'{"b":', b"}", b"{}")])
def test_depth_does_not_count_siblings(opened: bytes, closed: bytes, empty: bytes) -> None:
    inner = json.DEEPEST - 2 if empty else json.DEEPEST - 1
    many = b',"c":[' + b"[]," * 200 + b"[]]}"
    assert decode(b'{"a":' + opened * inner + empty + closed * inner + many)
    with pytest.raises(BadRequest, match="200 levels"):
        decode(b'{"a":' + opened * (inner + 1) + empty + closed * (inner + 1) + many)


def test_huge_integers_become_floats() -> None:
    assert decode(b'{"a": 123456789012345678901234567890}')["a"] == pytest.approx(1.2345678901234568e29)


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml"])
def test_other_media_types_are_unsupported(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json, application/yaml"):
        decode(b"{}", content_type)


def test_delete_options_body_is_optional_but_typed() -> None:
    assert decode_options(request(b"")) == {}
    assert decode_options(request(b'{"kind":"DeleteOptions","apiVersion":"v1"}'))["kind"] == "DeleteOptions"
    with pytest.raises(BadRequest, match="ConfigMap"):
        decode_options(request(b'{"kind": "ConfigMap"}'))


DUPLICATES = [
    (b'{"a": 1, "a": 2}', ("a",)),
    (b'{"a":1,"a":2,"a":3}', ("a",)),
    (b'{"a":{"b":1,"b":1},"c":[{"d":1},{"d":1,"d":2}]}', ("a.b", "c[1].d")),
    (b'{"a" : 1,\n "a"\t: 2}', ("a",)),
    (b'{"a":1,"a" :2}', ("a",)),
    (b'{"a":"\\":","b":"\\\\"}', ()),
    (b'{"a\\\\":1,"a\\\\":2}', ("a\\",)),
    (b'{"x":"\\\\\\":","x":1}', ("x",)),
    (b'{"a":"b : c","d":"e\\" : f"}', ()),
    (b'{"a":1,"a":"\\u003a"}', ("a",)),
    (b'{"a":1,"a":"\\u003A"}', ("a",)),
    (b'{"a":"\\u003a"}', ()),
]


@pytest.mark.parametrize(("body", "expected"), DUPLICATES)
def test_duplicate_fields_are_reported(body: bytes, expected: tuple[str, ...]) -> None:
    assert json.decode_noting(body)[1] == tuple(f'duplicate field "{path}"' for path in expected)


FEW = [
    (json.decode_noting, b"", 'duplicate field "' + "k" * 256 + '....1"'),
    (yaml.load, b"? ", 'line 1: key "1" already set in map'),
]


@pytest.mark.parametrize(("read", "mark", "second"), FEW)
def test_reported_duplicate_fields_are_limited(read: Any, mark: bytes, second: str) -> None:
    """A key may be nearly as long as the body, above a hundred thousand duplicate keys."""
    key, repeated = "k" * 300_000, ",".join(f'"{i}": 1, "{i}": 1' for i in range(10_000))
    duplicates = read(b'{%b"%b": {%b}}' % (mark, key.encode(), repeated.encode()))[1]
    assert len(duplicates) == json.MOST_DUPLICATES
    assert duplicates[1] == second


SMALL_VALUES = {
    "application/json": b'{"a":[' + b"[],{}," * 100_000 + b"0]}",
    "application/yaml": b"a: [" + b"0," * 200_000 + b"]",
    "application/cbor": b"\xa1\x61a\x9a" + (200_000).to_bytes(4, "big") + b"\x80" * 200_000,
    "application/vnd.kubernetes.protobuf": b"k8s\0" + wire.sized(2, bytes)(b"\x0a\0" * 200_000),
}


@pytest.mark.parametrize("media", SMALL_VALUES)
def test_number_of_values_is_limited(media: str) -> None:
    with pytest.raises((RequestEntityTooLarge, BadRequest), match=r"more than 100000|too many"):
        decode(SMALL_VALUES[media], media)


def test_brackets_in_strings_are_not_counted_as_values() -> None:
    text = ",[{" * 300_000
    assert decode(orjson.dumps({"data": {"table": text}}))["data"] == {"table": text}
    fine = {"a": [0] * (json.MOST_VALUES - 2)}
    assert json.decode(orjson.dumps(fine)) == fine
    with pytest.raises(RequestEntityTooLarge):
        json.decode(orjson.dumps({"a": [0] * (json.MOST_VALUES - 1)}))


class _Pairs(list[tuple[str, Any]]):
    """An object as the pairs of its keys and values, which may repeat."""


keys = st.text(st.sampled_from('ab"\\: \n'), max_size=3)
documents = st.recursive(
    st.one_of(keys, st.integers(0, 3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(st.tuples(keys, inner), max_size=4).map(_Pairs)),
    max_leaves=12,
)


def _spell(value: Any) -> str:
    if isinstance(value, _Pairs):
        return "{" + ",".join(f"{plain_json.dumps(key)}:{_spell(child)}" for key, child in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spell, value)) + "]"
    return plain_json.dumps(value)


def _repeats(value: Any) -> bool:
    if isinstance(value, _Pairs):
        # Of duplicate keys only the last value is compared, because it takes effect.
        return len(dict(value)) < len(value) or any(map(_repeats, dict(value).values()))
    return isinstance(value, list) and any(map(_repeats, value))


@settings(max_examples=200)
@given(documents)
def test_duplicates_are_found_if_and_only_if_present(document: Any) -> None:
    tree, duplicates = json.decode_noting(_spell(document).encode())
    assert bool(duplicates) == _repeats(document)
    assert orjson.loads(_spell(document)) == tree


@given(documents)
def test_brackets_in_strings_do_not_change_result(document: Any) -> None:
    """With many brackets in strings, the depth is computed; without, it need not be."""
    many = "[{" * json.DEEPEST
    plain, marked = (json.decode_noting(_spell([document, text]).encode()) for text in ("", many))
    assert plain[0][0] == marked[0][0]
    assert plain[1] == marked[1]


@pytest.mark.parametrize("note", [True, False])
def test_deepest_document_is_read(note: bool) -> None:
    for begin, end in ((b"[", b"]"), (b'{"a":', b"}")):
        data = begin * json.DEEPEST + b"1" + end * json.DEEPEST
        assert json.decode_noting(data, note=note) == (orjson.loads(data), ())
        with pytest.raises(BadRequest, match="levels deep"):
            json.decode_noting(begin + data + end, note=note)


def read_yaml(text: str) -> Any:
    return yaml.load(text.encode())[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [("yes", True), ("off", False), ("y", True), ("N", False), ("nO", "nO"),
     ("010", 8), ("0o17", 15), ("0x1F", 31), ("22:22", "22:22"),
     ("1e3", 1000.0), (".5", 0.5), ("2020-01-01", "2020-01-01"), ("~", None), ("", None), ("'1'", "1"), ("1_000", 1000),
     ("1.2.3", "1.2.3"), ("99999999999999999999999", 1e23), ("!!str 1", "1")],
)  # fmt: skip
def test_yaml_scalars_have_yaml_1_1_meaning_of_kubernetes(text: str, value: Any) -> None:
    assert read_yaml(f"a: {text}") == {"a": value}


def test_yaml_keys_are_strings_and_merge_keys_work() -> None:
    assert read_yaml("1: a\ntrue: b\n") == {"1": "a", "true": "b"}
    assert yaml.load(b"a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\n") == (
        {"a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}}, (),
    )  # fmt: skip
    assert read_yaml("a: &a {u: 1, v: 1}\nb: &b {v: 2, w: 2}\nc: {w: 3, <<: [*a, *b]}")["c"] == {"u": 1, "v": 1, "w": 3}
    assert yaml.load(b"a: 1\na: 2\nb: {c: 1, c: 2}\n")[1] == (
        'line 2: key "a" already set in map', 'line 3: key "c" already set in map',
    )  # fmt: skip


def test_yaml_aliases_are_copied() -> None:
    found = read_yaml("a: &a {b: [1]}\nc: *a\n")
    found["a"]["b"].append(2)
    assert found["c"] == {"b": [1]}


_BOMB = "a0: &a0 [1,1,1,1,1,1,1,1]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 9))


_MERGES = (
    "a: &a {" + ",".join(f"k{n}: 1" for n in range(1000)) + "}\nb: {<<: [" + ",".join(["*a"] * 1000) + "]}",
    "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40)),
)


@pytest.mark.parametrize(
    "text",
    ["a: [b", "--- 1\n--- 2\n", "? [a]\n: b", "a: .inf", "a: .nan", "a: !!python/object:os.system x", "a: !!bool x",
     "&a {x: *a}", "[" * 5000, "- " * 100_000 + "a", "a: \x00", "a: !!binary aaaa", _BOMB, "a: 1e999", "\ud800",
     *_MERGES, "%TAG !a! tag:x\n" + "".join(f"%TAG !a{i}! tag:x\n" for i in range(200)) + "--- 1", "a: {<<: 1}",
     "a: {<<: [1]}", "a: *b", "a: 1\n--- 2", "? {a: b}\n: c", "? ~\n: c", "!!map {a: b}", "!!str {a: b}",
     "a: 1" + "0" * 400, "a: 0x" + "f" * 400, "? 1" + "0" * 400 + "\n: a", "a: b\n" * 250_000],
)  # fmt: skip
def test_invalid_or_oversized_yaml_is_rejected(text: str) -> None:
    with pytest.raises(BadRequest):
        yaml.load(text.encode("utf-8", "surrogatepass"))


def test_error_does_not_reference_earlier_errors() -> None:
    causes = []
    for _ in range(2):
        with pytest.raises(BadRequest) as refused:
            yaml.load(b"[" * 300)
        causes.append(refused.value.__context__)
    assert causes[0] is not causes[1]


texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.text("-+.0123eExobB_:~<>=yYnNtrue#\n ", max_size=5)
numbers = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200)
@given(st.dictionaries(texts.filter(lambda name: name not in ("apiVersion", "kind")), values, max_size=4))
def test_object_is_equal_in_every_media_type(tree: dict[str, Any]) -> None:
    spelt = plain_json.dumps(tree)
    for media, write in {"json": bytes, "yaml": yaml.dump, "cbor": cbor.dump, "apply-patch+yaml": yaml.dump}.items():
        body = decode_document(f"application/{media}", write(spelt.encode()))
        assert plain_json.dumps(body.tree) == spelt
        assert body.duplicates == ()


def test_written_yaml_is_read_back() -> None:
    value = {
        "b": [1, {"x": "yes", "y": "1"}, [[], [{}], ["n", {"a": []}]]], "a": "two\nlines\n", "n": None, "ü": 1.5,
        "d": "2020-01-01", "long" * 500: {"x" * 2000: ["a"], "y" * 2000: "b"}, "e": [1e300, -0.0, 1e-7, 2.0],
        "l": ["\u2028\n", "a\n", "a\n\nb", "a\n\n\n", " a\nb", "\na"],
        "m": ["a\n b\n", "a \nb", "a\tb\nc", "a: b\n# c\n---\nd"],
    }  # fmt: skip
    assert yaml.load(yaml.dump(orjson.dumps(value)))[0] == value
    assert list(yaml.load(yaml.dump(orjson.dumps(value)))[0]) == list(value)
    assert plain_yaml.safe_load(yaml.dump(orjson.dumps(value))) == value


@settings(max_examples=200)
@given(st.dictionaries(texts, values, max_size=4))
def test_other_parsers_read_written_yaml_equally(tree: dict[str, Any]) -> None:
    assert plain_yaml.safe_load(yaml.dump(orjson.dumps(tree))) == tree
