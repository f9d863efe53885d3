"""Representations: what a caller accepts decides, and long lists come in chunks that make up the same bytes."""

import asyncio
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.call import Call, Item, Items, Reply, User
from apiserver_stub.encode.accept import JSON, PARTIAL, TABLE, YAML, Form, choose
from apiserver_stub.encode.negotiate import respond
from apiserver_stub.encode.views import represent
from apiserver_stub.kinds.registry import built_in
from controller_manager.api.errors import BadRequest, NotAcceptable
from controller_manager.api.wire import Request

AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
AS_PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PODS = built_in().find("", "v1", "pods")


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form()),
        ("  ", Form()),
        ("*/*", Form()),
        ("application/*", Form()),
        ("application/json", Form()),
        ("Application/JSON; charset=utf-8", Form()),
        ("application/yaml", Form(YAML)),
        ("application/yaml, application/json", Form(YAML)),
        ("application/yaml;q=0.5, application/json", Form(JSON)),
        ("*/*, application/yaml", Form(YAML)),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Form()),
        ("application/vnd.kubernetes.protobuf, application/json", Form()),
        ("application/vnd.kubernetes.protobuf,application/cbor;q=0.9,application/yaml;q=0.1", Form(YAML)),
        (f"{AS_TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Form(JSON, TABLE)),
        (f"application/json;as=Table;v=v1beta1;g=meta.k8s.io,{AS_TABLE}", Form(JSON, TABLE)),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Form()),
        ("application/json;as=Table;v=v1;g=other,application/yaml", Form(YAML)),
        (AS_PARTIAL.replace("Metadata", "MetadataList"), Form(JSON, PARTIAL)),
        ("application/json;q=0, */*;q=0.1", Form()),
        ("application/json;q=x", Form()),
        ('application/json;as="Table";v="v1";g="meta.k8s.io"', Form(JSON, TABLE)),
    ],
)
def test_the_best_offered_form_is_chosen(accept: str, form: Form) -> None:
    assert choose(accept) == form


@pytest.mark.parametrize(
    "accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;q=0", ",;", "x"]
)
def test_nothing_acceptable_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="application/json"):
        choose(accept)


@settings(max_examples=200)
@given(st.text(max_size=60) | st.text('aplicton/jsym*;=,q0.1 "', max_size=60))
def test_any_accept_header_has_an_answer(accept: str) -> None:
    try:
        assert choose(accept).media in (JSON, YAML)
    except NotAcceptable:
        return


weights = st.floats(0.001, 1).map(lambda q: round(q, 3))


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from([JSON, YAML, "text/html"]), weights), min_size=1, max_size=6))
def test_the_heaviest_wins_and_the_first_of_equals(ranges: list[tuple[str, float]]) -> None:
    offered = [(media, q) for media, q in ranges if media != "text/html"]
    accept = ", ".join(f"{media};q={q}" for media, q in ranges)
    if not offered:
        with pytest.raises(NotAcceptable):
            choose(accept)
        return
    assert choose(accept).media == max(offered, key=lambda range_: range_[1])[0]


def call(accept: str = "", verb: str = "list", **query: str) -> Call:
    assert PODS is not None
    request = Request("GET", "/", headers={"accept": accept})
    return Call(request, User("tester"), verb, PODS, "default", "", None, query)


def pod(name: str, size: int = 10) -> bytes:
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "resourceVersion": "7"},
        "spec": {"x": "y" * size},
    }
    return json.dumps(tree, separators=(",", ":")).encode()


async def answer(asked: Call, reply: Reply) -> tuple[list[bytes], dict[str, str]]:
    response = respond(asked, reply)
    body = response.body
    chunks = [body] if isinstance(body, bytes) else [chunk async for chunk in body]
    return chunks, dict(response.headers)


async def shown(asked: Call, body: Item | Items) -> Any:
    chunks, _ = await answer(asked, Reply(body))
    return json.loads(b"".join(chunks))


async def test_an_object_is_answered_with_its_bytes() -> None:
    chunks, headers = await answer(call(verb="get"), Reply(Item(pod("a"))))
    assert chunks == [pod("a")]
    assert headers == {"content-type": "application/json"}


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_a_short_list_is_one_piece(count: int) -> None:
    items = Items("9", [pod(str(n)) for n in range(count)], "token", 4)
    tree = await shown(call(), items)
    assert tree["kind"] == "PodList"
    assert tree["metadata"] == {"resourceVersion": "9", "continue": "token", "remainingItemCount": 4}
    assert [item["metadata"]["name"] for item in tree["items"]] == [str(n) for n in range(count)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 300_000), min_size=1, max_size=6))
def test_a_long_list_comes_in_large_chunks_that_make_up_the_list(sizes: list[int]) -> None:
    import asyncio

    items = Items("9", [pod(str(n), size) for n, size in enumerate(sizes)])
    chunks, _ = asyncio.run(answer(call(), Reply(items)))
    tree = json.loads(b"".join(chunks))
    assert [item["metadata"]["name"] for item in tree["items"]] == [str(n) for n in range(len(sizes))]
    assert all(len(chunk) >= 256 * 1024 for chunk in chunks[1:-2]), "all but the brackets and the rest"


@pytest.mark.parametrize("sizes", [[], [10], [10, 300_000, 20], [100_000] * 5])
async def test_a_collection_as_yaml_says_the_same_piece_by_piece(sizes: list[int]) -> None:
    items = Items("9", [pod(str(n), size) for n, size in enumerate(sizes)])
    chunks, headers = await answer(call("application/yaml"), Reply(items))
    whole, _ = await answer(call(), Reply(items))
    assert headers["content-type"] == "application/yaml"
    assert yaml.safe_load(b"".join(chunks)) == json.loads(b"".join(whole))


async def test_a_long_collection_as_yaml_lets_others_run() -> None:
    items, turns = Items("9", [pod(str(n)) for n in range(50)]), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.ensure_future(others())
    await answer(call("application/yaml"), Reply(items))
    running.cancel()
    assert turns >= 50


async def test_yaml_and_pretty() -> None:
    chunks, headers = await answer(call("application/yaml"), Reply(Items("9", [pod("a")])))
    assert headers["content-type"] == "application/yaml"
    assert yaml.safe_load(chunks[0])["items"][0]["metadata"]["name"] == "a"
    chunks, _ = await answer(call(verb="get", pretty="true"), Reply(Item(pod("a"))))
    assert chunks[0].startswith(b'{\n  "apiVersion": "v1"')
    chunks, _ = await answer(call(verb="get", pretty="false"), Reply(Item(pod("a"))))
    assert chunks == [pod("a")]


async def test_tables_and_metadata_stand_for_objects_and_lists() -> None:
    table = await shown(call(AS_TABLE), Items("9", [pod("a"), pod("b")], "token", 4))
    assert table["kind"] == "Table"
    assert table["metadata"] == {"resourceVersion": "9", "continue": "token", "remainingItemCount": 4}
    assert [row["cells"][0] for row in table["rows"]] == ["a", "b"]
    assert (await shown(call(AS_TABLE, "get"), Item(pod("a"))))["rows"][0]["object"]["metadata"]["name"] == "a"
    partial = {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a", "resourceVersion": "7"}}
    assert await shown(call(AS_PARTIAL, "get"), Item(pod("a"))) == partial
    listed = await shown(call(AS_PARTIAL), Items("9", [pod("a")]))
    assert (listed["kind"], listed["metadata"]) == (f"{PARTIAL}List", {"resourceVersion": "9"})
    assert listed["items"] == [partial]


async def test_a_status_has_one_form_only() -> None:
    assert await shown(call(AS_TABLE, "delete"), Item(b'{"kind":"Status"}', of_kind=False)) == {"kind": "Status"}


async def test_include_object_is_checked_for_tables() -> None:
    tree = await shown(call(AS_TABLE, includeObject="Object"), Items("9", [pod("a")]))
    assert tree["rows"][0]["object"]["spec"]
    with pytest.raises(BadRequest):
        respond(call(AS_TABLE, includeObject="Everything"), Reply(Items("9", [])))


def test_a_watch_is_json_only() -> None:
    with pytest.raises(NotAcceptable):
        respond(call("application/yaml", "watch"), Reply(Items("9", [])))


def test_a_watch_shows_tables_and_bookmarks_have_no_row() -> None:
    shape = represent(call(AS_TABLE, "watch"), TABLE)
    assert shape is not None
    assert [row["cells"][0] for row in json.loads(shape.convert(pod("a")))["rows"]] == ["a"]
    bookmark = b'{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"8","creationTimestamp":null}}'
    table = json.loads(shape.convert(bookmark))
    assert (table["rows"], table["metadata"]) == ([], {"resourceVersion": "8"})
    assert represent(call(verb="watch"), "") is None


async def test_warnings_are_a_header_of_plain_bounded_text() -> None:
    texts = ('unknown field "spec.a"', "bell \a, line\nend, ü", "x" * 9000)
    _, headers = await answer(call(verb="get"), Reply(Item(pod("a")), 200, texts))
    warning = headers["warning"]
    assert warning.startswith('299 - "unknown field \\"spec.a\\"", 299 - "bell  , line end, \\\\xfc", 299 - "xxx')
    assert warning.isprintable()
    _, headers = await answer(call(verb="get"), Reply(Item(pod("a")), 200, ("y" * 200,) * 1000))
    assert len(headers["warning"]) < 5000
