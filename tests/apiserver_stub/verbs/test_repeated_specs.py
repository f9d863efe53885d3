"""Specs that came before in creates: the answer to a body is the same as if its spec came for the first time."""

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from apiserver_stub.api_request import APIRequest
from apiserver_stub.kinds.built_in import resources
from apiserver_stub.kinds.defaults import has_lasting_defaults
from apiserver_stub.verbs import repeated_specs
from apiserver_stub.verbs.repeated_specs import NewObject, parts_of_new, read_new_object
from controller_manager.api.errors import ApiError, BadRequest
from controller_manager.api.protobuf import MAGIC, MEDIA_TYPE, RAW, envelope
from controller_manager.api.protobuf import body as protobuf_body
from controller_manager.api.protobuf.wire import fields, head

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
POD = (
    b'{"containers":[{"name":"c","image":"i:1","env":[{"name":"A","value":"x:y"}],"ports":[{"containerPort":80}],'
    b'"resources":{"limits":{"cpu":"1"}}}],"volumes":[{"name":"v","emptyDir":{}}]}'
)
DEPLOYMENT = (
    b'{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"},"creationTimestamp":null},'
    b'"spec":{"containers":[{"name":"c","image":"i"}]}}}'
)
CASES = {
    "plain": b'{"metadata":{"name":"a"},"spec":%b}',
    "typed": b'{"apiVersion":"API","kind":"KIND","metadata":{"name":"a","annotations":{"b":"c:d"}},"spec":%b}',
    "spec first": b'{"spec":%b,"kind":"KIND","metadata":{"labels":{"z":"1","a":"2"},"name":"a"},"apiVersion":"API"}',
    "spaces": b' {\n "metadata" : {"name" : "a"} , "spec":%b\t}\n',
    "generated": b'{"metadata":{"generateName":"a-"},"spec":%b}',
    "owned": b'{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"A","name":"o","uid":"u",'
    b'"controller":true},{"apiVersion":"v1","kind":"A","name":"o","uid":"u","controller":true}]},"spec":%b}',
    "null": b'{"metadata":{"name":"a","creationTimestamp":null,"labels":null},"spec":%b}',
    "escaped": b'{"metadata":{"name":"a","annotations":{"n":"\\u003a\\n:"}},"spec":%b}',
    "escaped key": b'{"m\\u0065tadata":{"name":"a"},"spec":%b}',
    "name twice": b'{"metadata":{"name":"a","name":"b"},"spec":%b}',
    "metadata twice": b'{"metadata":{"name":"a"},"spec":%b,"metadata":{"name":"b"}}',
    "kind twice": b'{"kind":"KIND","metadata":{"name":"a"},"spec":%b,"kind":"KIND"}',
    "hidden twice": b'{"metadata":{"name":"a","name":"b","annotations":{"n":"\\u003a"}},"spec":%b}',
    "spec twice": b'{"metadata":{"name":"a"},"spec":{"x":1},"spec":%b}',
    "unknown": b'{"metadata":{"name":"a","nome":"b"},"spec":%b}',
    "unknown beside": b'{"metadata":{"name":"a"},"spec":%b,"extra":1}',
    "status": b'{"metadata":{"name":"a"},"status":{"phase":"Running"},"spec":%b}',
    "no status": b'{"metadata":{"name":"a"},"status":null,"spec":%b}',
    "no metadata": b'{"spec":%b}',
    "null metadata": b'{"metadata":null,"spec":%b}',
    "list as metadata": b'{"metadata":["name"],"spec":%b}',
    "wrong type": b'{"metadata":{"name":1},"spec":%b}',
    "wrong label": b'{"metadata":{"name":"a","labels":{"a":1}},"spec":%b}',
    "wrong kind": b'{"kind":"Secret","metadata":{"name":"a"},"spec":%b}',
    "empty kind": b'{"kind":"","apiVersion":"","metadata":{"name":"a"},"spec":%b}',
    "null kind": b'{"kind":null,"metadata":{"name":"a"},"spec":%b}',
    "wrong version": b'{"apiVersion":"v7","metadata":{"name":"a"},"spec":%b}',
    "no text as a name": b'{"apiVersion":"API","kind":"KIND","metadata":{"name":"a\xff"},"spec":%b}',
    "no text as a kind": b'{"apiVersion":"API","kind":"\xa2","metadata":{"name":"a"},"spec":%b}',
    "no text as a key": b'{"apiVersion":"API","\x80":1,"metadata":{"name":"a"},"spec":%b}',
    "nobody's": b'{"metadata":{"name":"a","managedFields":[]},"spec":%b}',
    "somebody's": b'{"metadata":{"name":"a","managedFields":[{"manager":"m","operation":"Apply","apiVersion":"API",'
    b'"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}}]},"spec":%b}',
    "versioned": b'{"metadata":{"name":"a","resourceVersion":"7","uid":"u","generation":9},"spec":%b}',
    "other namespace": b'{"metadata":{"name":"a","namespace":"b"},"spec":%b}',
    "bad name": b'{"metadata":{"name":"A b"},"spec":%b}',
    "no name": b'{"metadata":{},"spec":%b}',
    "deep": b'{"metadata":{"name":"a","x":' + b"[" * 300 + b"]" * 300 + b'},"spec":%b}',
    "no text": b'{"metadata":{"name":"a","labels":{"a":"\xff"}},"spec":%b}',
    "surrogate": b'{"metadata":{"name":"a","labels":{"a":"\\ud800"}},"spec":%b}',
    "more": b'{"metadata":{"name":"a"},"spec":%b} {}',
    "cut off": b'{"metadata":{"name":"a"},"spec":%b',
}
NAME = re.compile(rb'("name": ?)"a"')
TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z")
numbers = itertools.count(1)


def spaced(spec: bytes, number: int) -> bytes:
    """Return a spec with a number as spaces and tabs, each time as many."""
    return spec[:-1] + f"{number:016b}".translate({48: " ", 49: "\t"}).encode() + b"}"


async def outcome(api: Any, url: str, body: bytes, method: str = "POST", **headers: str) -> Any:
    """What is answered, but for what is another each time."""
    try:
        answer = await api(method, url, body, user_agent="test/1", **headers)
    except ApiError as error:
        return type(error), error.message, error.warnings
    metadata = answer.tree["metadata"]
    text = TIME.sub("NOW", answer.data.decode().replace(metadata["uid"], "UID"))
    text = text.replace(metadata["name"] if "generateName" in metadata else "NAME", "NAME")
    return answer.status, text, answer.headers.get("warning")


def _read(request: APIRequest) -> NewObject:
    return read_new_object(request, parts_of_new(request))


@pytest.mark.parametrize("level", ["Strict", "Warn", "Ignore"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("url", "spec", "api_version", "kind"),
    [(PODS, POD, b"v1", b"Pod"), (DEPLOYMENTS, DEPLOYMENT, b"apps/v1", b"Deployment")],
)
async def test_a_known_spec_changes_no_answer(
    api: Any, level: str, case: str, url: str, spec: bytes, api_version: bytes, kind: bytes
) -> None:
    form = CASES[case].replace(b"API", api_version).replace(b"KIND", kind)
    asked = f"{url}?dryRun=All&fieldValidation={level}"
    for _ in range(2):
        await api("POST", asked, b'{"metadata":{"name":"a"},"spec":%b}' % spaced(spec, 0))
    new = spaced(spec, next(numbers))  # which has never come
    assert await outcome(api, asked, form.replace(b"%b", spaced(spec, 0))) == await outcome(
        api, asked, form.replace(b"%b", new)
    )


@pytest.mark.parametrize("case", ["plain", "typed", "spec first", "spaces", "generated", "null"])
async def test_usual_bodies_are_read_without_their_spec(api: Any, case: str) -> None:
    spec = POD.replace(b"x:y", b"value %d" % next(numbers))
    body = CASES[case].replace(b"API", b"v1").replace(b"KIND", b"Pod").replace(b"%b", spec)
    known = []
    for _ in range(4):
        known.append(_read(api.call("POST", PODS, body)).completed)
        await api("POST", f"{PODS}?dryRun=All", body)
    assert known == [False, False, True, True]


async def test_objects_of_one_spec_share_nothing_that_changes(api: Any) -> None:
    body = CASES["plain"].replace(b"%b", POD)
    for _ in range(3):
        await api("POST", f"{PODS}?dryRun=All", body)
    one, other = (_read(api.call("POST", PODS, body)).tree for _ in range(2))
    before = json.dumps(other)
    one["spec"]["containers"][0]["env"].clear()
    one["metadata"]["labels"] = {"a": "b"}
    assert json.dumps(other) == before
    assert json.dumps(_read(api.call("POST", PODS, body)).tree) == before


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"metadata":{"annotations":{"a":"%b"}},"spec":%b}' % (b"x" * 16 * 1024, POD), {}),
        (b'{"metadata":{},"spec":%b}' % POD, {"content-type": "application/yaml"}),
    ],
)
async def test_other_bodies_are_read_whole(api: Any, body: bytes, headers: dict[str, str]) -> None:
    for _ in range(4):
        await api("POST", f"{PODS}?dryRun=All", b'{"metadata":{"name":"a"},"spec":%b}' % POD)
    assert _read(api.call("POST", PODS, body, headers)).spec is None


def test_only_specs_that_are_completed_by_themselves_are_known() -> None:
    known = {kind.name for kind in resources() if has_lasting_defaults(kind)}
    assert {"pods", "deployments.apps", "replicasets.apps"} <= known
    assert not {"jobs.batch", "services", "replicationcontrollers", "configmaps", "namespaces"} & known
    assert not {"devicetaintrules.resource.k8s.io", "resourceslices.resource.k8s.io"} & known


def test_few_specs_are_kept() -> None:
    assert repeated_specs._SPECS.most == repeated_specs._BODIES.most == 256
    assert repeated_specs._NAMED_BODIES.most == 128


@pytest.mark.parametrize("spec", [b'{"x":1,%b' % POD[1:], POD[:-1] + b',"nodeName":"n","nodeName":"n"}'])
async def test_what_one_creator_lets_pass_is_told_to_another(api: Any, spec: bytes) -> None:
    body = b'{"metadata":{"generateName":"a"},"spec":%b}' % spec
    for _ in range(3):
        await api("POST", f"{PODS}?dryRun=All&fieldValidation=Ignore", body)
    warned = await api("POST", f"{PODS}?dryRun=All", body)
    assert " field " in warned.headers["warning"]
    with pytest.raises(BadRequest, match="strict decoding error"):
        await api("POST", f"{PODS}?dryRun=All&fieldValidation=Strict", body)


UNNAMED = {
    name: form.replace(b'"name":"a"', b'"generateName":"a-"') for name, form in CASES.items() if b'"name":"a"' in form
}


@pytest.mark.parametrize("case", UNNAMED)
@pytest.mark.parametrize(
    ("url", "spec", "api_version", "kind"),
    [(PODS, POD, b"v1", b"Pod"), (DEPLOYMENTS, DEPLOYMENT, b"apps/v1", b"Deployment")],
)
async def test_a_known_body_changes_no_answer(
    api: Any, case: str, url: str, spec: bytes, api_version: bytes, kind: bytes
) -> None:
    body = UNNAMED[case].replace(b"API", api_version).replace(b"KIND", kind).replace(b"%b", spaced(spec, next(numbers)))
    for level in ("Warn", "Strict", "Ignore"):
        asked = f"{url}?dryRun=All&fieldValidation={level}"
        first = await outcome(api, asked, body)
        for _ in range(3):
            assert await outcome(api, asked, body) == first


NAMED = {
    **{name: form for name, form in CASES.items() if b'"name":"a"' in form},
    "named once more": b'{"metadata":{"name":"a","labels":{"app":"a"}},"spec":%b}',
    "with another that is named so": b'{"metadata":{"labels":{"name":"a"},"name":"a"},"spec":%b}',
    "as its owner": b'{"metadata":{"name" : "a","ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a",'
    b'"uid":"u"}]},"spec":%b}',
    "as python writes it": b'{"metadata": {"name": "a", "labels": {"app": "b"}}, "spec": %b}',
}


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize(
    ("url", "spec", "api_version", "kind"),
    [(PODS, POD, b"v1", b"Pod"), (DEPLOYMENTS, DEPLOYMENT, b"apps/v1", b"Deployment")],
)
async def test_a_known_body_of_another_name_changes_no_answer(
    api: Any, case: str, url: str, spec: bytes, api_version: bytes, kind: bytes
) -> None:
    form = NAMED[case].replace(b"API", api_version).replace(b"KIND", kind).replace(b"%b", spaced(spec, next(numbers)))
    for level in ("Warn", "Strict", "Ignore"):
        seen = set()
        for name in ("name1", "name2", "name3", "name4", 'n"me5'):
            body = form.replace(b'"a"', json.dumps(name).encode())
            found = str(await outcome(api, f"{url}?dryRun=All&fieldValidation={level}", body))
            seen.add("" if '"' in name else found.replace(name, "its name"))
        assert len(seen) == 2


@pytest.mark.parametrize("case", ["plain", "typed", "spec first", "null", "as python writes it"])
async def test_usual_bodies_that_differ_in_their_names_are_known(api: Any, case: str) -> None:
    form = NAMED[case].replace(b"API", b"v1").replace(b"KIND", b"Pod").replace(b"%b", spaced(POD, next(numbers)))
    known = []
    for name in (b"one", b"two", b"three", b"four"):
        found = _read(api.call("POST", PODS, body := re.sub(NAME, b'\\1"%b"' % name, form)))
        known.append(found.fields is not None)
        assert found.tree["metadata"]["name"] == name.decode()
        await api("POST", f"{PODS}?dryRun=All", body)
    assert known == [False, False, True, True]


async def test_a_container_called_as_the_object_makes_another_body(api: Any) -> None:
    seen = []
    for name in (b"one", b"two", b"three", b"four", b"four"):
        body = b'{"metadata":{"name":"%b"},"spec":{"containers":[{"name":"%b","image":"i"}]}}' % (name, name)
        answer = await api("POST", f"{PODS}?dryRun=All", body)
        seen.append((answer.tree["metadata"]["name"], answer.tree["spec"]["containers"][0]["name"]))
    assert seen == [(name, name) for name in ("one", "two", "three", "four", "four")]


async def test_a_known_body_is_of_its_own_creator_namespace_and_time(api: Any) -> None:
    body = UNNAMED["plain"].replace(b"%b", spaced(POD, next(numbers)))
    await api("POST", "/api/v1/namespaces", b'{"metadata":{"name":"other"}}')
    seen = []
    for agent, namespace in (("one", "default"), ("one", "default"), ("two", "default"), ("two", "other")):
        url = f"/api/v1/namespaces/{namespace}/pods"
        metadata = (await api("POST", url, body, user_agent=f"{agent}/1")).tree["metadata"]
        (entry,) = metadata["managedFields"]
        assert (entry["manager"], metadata["namespace"]) == (agent, namespace)
        assert entry["time"] == metadata["creationTimestamp"]
        seen.append((metadata["name"], metadata["uid"], json.dumps(entry["fieldsV1"])))
    assert len({name for name, _, _ in seen}) == len({uid for _, uid, _ in seen}) == len(seen)
    assert len({fields for _, _, fields in seen}) == 1


OWNED: list[dict[str, Any]] = [
    {"labels": {"a": "1"}},
    {"labels": {"a": "2"}},
    {"labels": {"b": "2"}},
    {"labels": {"b": "2"}, "annotations": {"a": "x"}},
    {"annotations": {"a": "x", "b": "y"}},
    {"annotations": {"b": "y", "a": "z"}},
    {"finalizers": ["a.b/c"]},
    {"finalizers": ["a.b/d"]},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "o", "uid": "u"}]},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "o", "uid": "v"}]},
    {},
]


async def test_the_fields_of_metadata_are_those_of_each_object(api: Any) -> None:
    seen = []
    for _ in range(3):
        seen.append([])
        for metadata in OWNED:
            named = json.dumps({"generateName": "a-", **metadata}).encode()
            spec = POD.replace(b"x:y", b"value %d" % next(numbers))
            answer = await api("POST", f"{PODS}?dryRun=All", b'{"metadata":%b,"spec":%b}' % (named, spec))
            (entry,) = answer.tree["metadata"]["managedFields"]
            seen[-1].append(entry["fieldsV1"])
    assert seen == seen[:1] * len(seen)
    for metadata, found in zip(OWNED, seen[0], strict=True):
        owned = found["f:metadata"]
        assert owned.pop("f:generateName") == {}
        assert owned.keys() == {f"f:{name}" for name in metadata}
        for name in {"labels", "annotations"} & metadata.keys():
            assert owned[f"f:{name}"] == {".": {}, **{f"f:{key}": {} for key in metadata[name]}}
        for name in {"finalizers"} & metadata.keys():
            assert owned[f"f:{name}"] == {".": {}, **{f'v:"{one}"': {} for one in metadata[name]}}
        for name in {"ownerReferences"} & metadata.keys():
            assert list(owned[f"f:{name}"]) == [".", *(f'k:{{"uid":"{one["uid"]}"}}' for one in metadata[name])]


TWICE = b"\x0a\x0b\x5a\x09\x0a\1x\x12\4more"  # metadata with a label
PROTOBUF = {"content_type": MEDIA_TYPE}
OWNER = {"apiVersion": "v1", "kind": "A", "name": "o", "uid": "u"}
METADATA: dict[str, dict[str, Any]] = {
    "named": {"name": "a", "labels": {"z": "1", "a": "2"}},
    "generated": {
        "generateName": "a-",
        "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "o", "uid": "u"}],
    },
    "owned twice": {"name": "a", "ownerReferences": [OWNER, OWNER]},
    "somebody's": {
        "name": "a",
        "managedFields": [
            {
                "manager": "m",
                "operation": "Apply",
                "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:hostNetwork": {}}},
            }
        ],
    },
    "versioned": {"name": "a", "resourceVersion": "7", "uid": "u", "generation": 9},
    "other namespace": {"name": "a", "namespace": "b"},
    "bad name": {"name": "A b"},
    "no name": {},
}
DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "whole": lambda body: body,
    "cut off": lambda body: body[:-30],
    "no magic": lambda body: body[1:],
    "no field": lambda body: body + b"\0",
    "metadata twice": lambda body: envelope("v1", "Pod", head(RAW, len(raw := TWICE + _raw(body))) + raw),
    "metadata as a number": lambda body: envelope("v1", "Pod", head(RAW, len(raw := b"\x08\1" + _raw(body))) + raw),
    "wrong kind": lambda body: body.replace(b"Pod", b"Job", 1),
    "no kind": lambda body: body.replace(b"\x12\3Pod", b"\x12\0", 1).replace(b"\x0a\x09", b"\x0a\6", 1),
}


def _raw(body: bytes) -> bytes:
    """Return the message in an envelope."""
    return dict(fields(body[len(MAGIC) :]))[RAW << 3 | 2]  # type: ignore[return-value]


def pod_of(metadata: dict[str, Any], value: object, **more: Any) -> bytes:
    """Return a pod in protobuf with a value in its spec."""
    spec = json.loads(POD.replace(b"x:y", f"value {value}".encode()))
    body = protobuf_body("v1", "Pod", json.dumps({"metadata": metadata, "spec": spec, **more}).encode())
    assert body is not None
    return body


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("status", [{}, {"status": {"phase": "Running"}}])
@pytest.mark.parametrize("metadata", METADATA)
async def test_a_known_spec_in_protobuf_changes_no_answer(
    api: Any, metadata: str, status: dict[str, Any], damage: str
) -> None:
    known, asked = next(numbers), f"{PODS}?dryRun=All"
    for _ in range(2):
        await api("POST", asked, pod_of({"name": "a"}, known), **PROTOBUF)
    seen = []
    for number in (known, next(numbers)):
        body = DAMAGED[damage](pod_of(METADATA[metadata], number, **status))
        for _ in range(3):
            found = await outcome(api, asked, body, **PROTOBUF)
            seen.append(str(found).replace(f"value {number}", "VALUE"))
    assert len(set(seen)) == 1


async def test_usual_bodies_in_protobuf_are_read_without_their_spec(api: Any) -> None:
    number = next(numbers)
    for metadata in ("named", "generated", "owned twice", "bad name"):
        await api("POST", f"{PODS}?dryRun=All", pod_of({"name": "a"}, number), **PROTOBUF)
        await api("POST", f"{PODS}?dryRun=All", pod_of({"name": "b"}, number), **PROTOBUF)
        found = _read(api.call("POST", PODS, pod_of(METADATA[metadata], number), {"content-type": MEDIA_TYPE}))
        assert found.completed
        assert found.whole is not None or metadata != "generated"
