"""Errors of requests are a `Status` with the documented code, and the request changes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.apiserver_stub.api_client import Answer

PODS, CONFIGS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(FEW, max_examples=200)

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "new", "labels": {"app": "a"}, "annotations": {"note": "ö"}},
    "spec": {
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A"}]}],
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"disk": "fast"},
        "terminationGracePeriodSeconds": 5,
        "hostNetwork": False,
    },
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "new"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": POD["spec"]},
    },
}
CONFIG: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"k": "v"}}
SEEDS = ((PODS, POD), (DEPLOYMENTS, DEPLOYMENT), (CONFIGS, CONFIG))

# Names of no kind; an empty one would be another path.
JUNK = st.text(st.characters(exclude_categories=["C"], exclude_characters="/?#%"), min_size=1, max_size=20)
NOT_A_NAME = st.one_of(
    st.sampled_from(["A", "a_b", "-a", "a-", "a..b", ".", "a" * 254, "a b", "ä", "a\n", "a\x00"]),
    st.from_regex(r"[A-Z_!@ ]{1,10}", fullmatch=True),
)
WRONG = st.one_of(
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.just([1]),
    st.just({"a": {"b": 1}}),
)


@pytest.fixture(scope="module", autouse=True)
def old_objects(api: Any) -> None:
    """Objects for wrong requests: one of each seed, called `old`, and a terminating namespace."""
    for path, seed in SEEDS:
        old = seed | {"metadata": seed["metadata"] | {"name": "old"}}
        assert api.ask("POST", path, old).status == 201
    assert api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "going"}}).status == 201
    assert api.ask("DELETE", "/api/v1/namespaces/going").status == 200


@pytest.fixture
def rejects(api: Any) -> Any:
    """Send a request that must fail with one of `codes`; return its Status."""

    def ask(codes: int | tuple[int, ...], method: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        before = api.revision
        tree = check_status(answer := api.ask(method, path, body, **more))
        assert answer.status in ((codes,) if isinstance(codes, int) else codes), tree
        assert api.revision == before
        return tree

    return ask


def check_status(answer: Answer) -> dict[str, Any]:
    tree = answer.tree
    assert (tree["kind"], tree["apiVersion"], tree["status"]) == ("Status", "v1", "Failure")
    assert tree["code"] == answer.status
    assert answer.status == 500 or tree["reason"]  # kube-apiserver has none for its internal errors
    assert tree["message"]
    return tree


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of a tree, including inner ones."""
    if path:
        yield path
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in inner:
        yield from leaves(value, (*path, name))


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the tree with another value at a path."""
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


def value_at(tree: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


# bodies


@FEW
@given(st.sampled_from(SEEDS), st.floats(0, 1, exclude_max=True))
def test_malformed_json_is_rejected(rejects: Any, seed: Any, where: float) -> None:
    whole = json.dumps(seed[1]).encode()
    rejects(400, "POST", seed[0], whole[: int(len(whole) * where)])


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe{}",
        b'{"metadata":{"name":"\xff"}}',
        b'{"metadata":{"name":"a"},"data":{"k":"\\ud800"}}',
        b'{"metadata":{"name":"a"},"data":{"k":NaN}}',
        b'{"metadata":{"name":"a"}}{"metadata":{"name":"b"}}',
        b"null",
        b"[]",
        b'"text"',
        b"1e999",
        b'{"metadata":' * 5000 + b"{}" + b"}" * 5000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"metadata":{"generation":' + b"9" * 5000 + b"}}",
        b"\x00" * 100,
    ],
)
@pytest.mark.parametrize("path", [PODS, CONFIGS])
def test_body_that_is_not_an_object_is_rejected(rejects: Any, body: bytes, path: str) -> None:
    rejects(400, "POST", path, body)


@MANY
@given(st.sampled_from(SEEDS), st.data())
def test_value_of_wrong_type_is_rejected(rejects: Any, seed: Any, data: st.DataObject) -> None:
    path, tree = seed
    # a label that is a text accepts any value, and numbers may be of either type
    spot = data.draw(st.sampled_from([p for p in leaves(tree) if p[0] in ("spec", "data")]))
    kind = type(value_at(tree, spot))
    wrong = data.draw(WRONG.filter(lambda value: type(value) is not kind))
    said = rejects(400, "POST", path, replaced(tree, spot, wrong))
    assert str(spot[-1] if isinstance(spot[-1], str) else spot[-2]) in said["message"]


@FEW
@given(st.sampled_from(SEEDS), st.sampled_from(["kind", "apiVersion"]), JUNK)
def test_body_of_another_kind_is_rejected(rejects: Any, seed: Any, field: str, junk: str) -> None:
    rejects(400, "POST", seed[0], seed[1] | {field: junk})


@FEW
@given(st.sampled_from(SEEDS), NOT_A_NAME)
def test_invalid_name_is_rejected(rejects: Any, seed: Any, name: str) -> None:
    path, tree = seed
    said = rejects(422, "POST", path, tree | {"metadata": {"name": name}})
    assert "metadata.name" in [cause["field"] for cause in said["details"]["causes"]]


@FEW
@given(st.sampled_from(SEEDS), st.dictionaries(JUNK.filter(lambda key: not key.isascii()), st.text(), min_size=1))
def test_invalid_labels_are_rejected(rejects: Any, seed: Any, labels: dict[str, str]) -> None:
    path, tree = seed
    rejects(422, "POST", path, tree | {"metadata": {"name": "new", "labels": labels}})
    rejects(422, "PATCH", f"{path}/old", {"metadata": {"labels": labels}}, headers={"content-type": MERGE_PATCH})


@pytest.mark.parametrize("field", ["spec", "metadata", "spec.containers.0", "spec.containers.0.ports.0"])
def test_strict_validation_names_unknown_field(rejects: Any, api: Any, field: str) -> None:
    path = tuple(int(part) if part.isdecimal() else part for part in field.split("."))
    body = replaced(POD, path, value_at(POD, path) | {"bogus": 1})
    said = rejects(400, "POST", PODS, body, fieldValidation="Strict")
    assert 'unknown field "' in said["message"]
    twice = json.dumps(POD).replace('"image": "i"', '"image": "i", "image": "j"').encode()
    assert "duplicate field" in rejects(400, "POST", PODS, twice, fieldValidation="Strict")["message"]
    before = api.revision
    assert api.ask("POST", PODS, body, fieldValidation="Warn", dryRun="All").status == 201
    assert api.revision == before


# versions


@FEW
@given(
    st.sampled_from(SEEDS), st.integers(1, 3) | st.integers(10**6, 2**70) | JUNK.filter(lambda text: not text.isdigit())
)
@example(SEEDS[0], "-1")
def test_stale_or_malformed_version_is_rejected(rejects: Any, seed: Any, version: Any) -> None:
    path, tree = seed
    old = {"name": "old", "resourceVersion": str(version)}
    rejects((400, 409, 422, 500), "PUT", f"{path}/old", tree | {"metadata": old})
    patch = {"metadata": {"resourceVersion": str(version)}, "data": {"k": "w"}}
    rejects((400, 409, 422, 500), "PATCH", f"{path}/old", patch, headers={"content-type": MERGE_PATCH})
    rejects(409, "DELETE", f"{path}/old", {"preconditions": {"resourceVersion": str(version)}})
    rejects(409, "DELETE", f"{path}/old", {"preconditions": {"uid": str(version)}})
    rejects(409, "PUT", f"{path}/old", tree | {"metadata": {"name": "old", "uid": str(version)}})


# patches


@pytest.mark.parametrize("kind", [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH])
@FEW
@given(data=st.data())
def test_patch_of_wrong_type_is_rejected(rejects: Any, kind: str, data: st.DataObject) -> None:
    right = list if kind == JSON_PATCH else dict
    junk = st.recursive(WRONG | st.none() | st.text(), lambda inner: st.lists(inner, max_size=2), max_leaves=4)
    body = data.draw(junk.filter(lambda value: not isinstance(value, right)))
    rejects(400, "PATCH", f"{DEPLOYMENTS}/old", body, headers={"content-type": kind})
    rejects(400, "PATCH", f"{DEPLOYMENTS}/old", data.draw(st.just(b"{") | st.just(b"\xff") | st.just(b"")),
            headers={"content-type": kind})  # fmt: skip


@pytest.mark.parametrize(
    ("codes", "operations"),
    [
        ((400, 422), [{"op": "dream", "path": "/spec/replicas", "value": 1}]),
        ((400, 422), [{"op": "add", "value": 1}]),
        ((400, 422), [{"op": "add", "path": "spec", "value": 1}]),
        ((400, 422), [{"op": "move", "path": "/spec/template", "from": "/spec"}]),
        ((400, 422), [1]),
        (422, [{"op": "test", "path": "/spec/replicas", "value": 99}]),
        (422, [{"op": "remove", "path": "/spec/nothing"}]),
        (422, [{"op": "replace", "path": "/spec/template/spec/containers/7/image", "value": "i"}]),
        (422, [{"op": "add", "path": "/spec/template/spec/containers/-1", "value": {}}]),
        (422, [{"op": "copy", "from": "/nothing", "path": "/spec/replicas"}]),
        (422, [{"op": "replace", "path": "/spec/replicas", "value": -1}]),
        (422, [{"op": "remove", "path": "/spec/selector"}]),
        ((400, 409, 422), [{"op": "replace", "path": "/metadata/name", "value": "other"}]),
        ((400, 422), [{"op": "replace", "path": "", "value": []}]),
        (422, [{"op": "replace", "path": "/spec/replicas", "value": "2"}]),
        ((400, 413, 422), [{"op": "copy", "from": "/spec", "path": "/spec/x"}] * 20_000),
    ],
)
def test_inapplicable_json_patch_is_rejected(rejects: Any, codes: Any, operations: Any) -> None:
    rejects(codes, "PATCH", f"{DEPLOYMENTS}/old", operations, headers={"content-type": JSON_PATCH})


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"template": {"spec": {"containers": [{"image": "i"}]}}}},
        {"spec": {"template": {"spec": {"containers": {"name": "c"}}}}},
        {"spec": {"template": {"spec": {"containers": [1]}}}},
        {"spec": {"$patch": "dream"}},
        {"spec": {"strategy": {"$retainKeys": "type"}}},
        {"spec": {"template": {"spec": {"$setElementOrder/containers": 5}}}},
        {"spec": {"replicas": "2"}},
        {"spec": 7},
    ],
)
def test_inapplicable_strategic_patch_is_rejected(rejects: Any, patch: Any) -> None:
    rejects((400, 422, 500), "PATCH", f"{DEPLOYMENTS}/old", patch, headers={"content-type": STRATEGIC_PATCH})


# queries


@FEW
@given(JUNK)
def test_unknown_paths_are_not_found(rejects: Any, junk: str) -> None:
    for path in (
        f"/{junk}",
        f"/api/{junk}",
        f"/api/v1/{junk}/x",
        f"/apis/{junk}/v1/pods",
        f"/apis/apps/{junk}/deployments",
        f"/api/v1/namespaces/default/{junk}/x",
        f"{PODS}/{junk}/{junk}",
        f"{PODS}/old/status/{junk}",
    ):
        rejects((400, 404), "GET", path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{PODS}/old"),
        ("PUT", PODS),
        ("PATCH", PODS),
        ("DELETE", f"{PODS}/old/status"),
        ("POST", "/api/v1/pods"),
        ("TRACE", PODS),
        ("BREW", PODS),
        ("GET", f"{PODS}/old/binding"),
        ("DELETE", "/api/v1/componentstatuses"),
        ("POST", "/version"),
    ],
)
def test_unsupported_methods_are_rejected(rejects: Any, method: str, path: str) -> None:
    assert rejects((404, 405), method, path, POD if method == "POST" else None)["message"]


@FEW
@given(st.sampled_from(["text/html", "application/xml", "application/json;as=Dream;g=meta.k8s.io;v=v1", "image/*"]))
def test_unsupported_media_types_are_rejected(rejects: Any, media: str) -> None:
    rejects(406, "GET", f"{PODS}/old", headers={"accept": media})
    rejects(415, "POST", PODS, POD, headers={"content-type": media.partition(";")[0] + "x"})


# any bytes


@MANY
@given(
    st.sampled_from(SEEDS),
    st.sampled_from(["POST", "PUT", JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.binary(max_size=3)), max_size=4),
    st.booleans(),
)
def test_any_changed_bytes_are_accepted_or_rejected(
    api: Any, seed: Any, way: str, harm: list[Any], status: bool
) -> None:
    """Cut, overwrite and insert bytes of a valid body: it is accepted, or rejected without effect."""
    path, tree = seed
    tree = tree | {"metadata": tree["metadata"] | {"name": "old"}}
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}, {"op": "test", "path": "/kind"}]
    body = bytearray(json.dumps(operations if way == JSON_PATCH else tree).encode())
    for where, cut, insert in harm:
        at = int(len(body) * where)
        body[at : at + cut] = insert
    method = way if way in ("POST", "PUT") else "PATCH"
    headers = {"content-type": "application/json" if method != "PATCH" else way}
    target = path if method == "POST" else f"{path}/old{'/status' if status and path != CONFIGS else ''}"
    before = api.revision
    answer = api.ask(method, target, bytes(body), headers=headers)
    if answer.status >= 400:
        message = check_status(answer)
        # kube-apiserver answers a strategic patch that cannot be applied like this.
        assert answer.status < 500 or (way == STRATEGIC_PATCH and answer.status == 500 and "reason" not in message)
        assert api.revision == before
    else:
        assert answer.status in (200, 201)
        kept = answer.tree
        assert (kept["apiVersion"], kept["kind"]) == (tree["apiVersion"], tree["kind"])
    found = api.ask("GET", f"{path}/old").tree
    assert found["metadata"]["name"] == "old"
