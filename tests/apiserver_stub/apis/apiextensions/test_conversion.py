"""Conversion of custom objects by a webhook on loopback: requests, and checks of the answers.

The errors equal those of kube-apiserver 1.36 with the same webhook.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from apiserver_stub.apis.apiextensions.conversion import ConversionFailed, ConversionMetrics, Converters
from apiserver_stub.common.offload import Offload
from apiserver_stub.webhooks.client import WebhookClient, WebhookLimits
from controller_manager.common.api.errors import ApiError
from tests.apiserver_stub.webhooks.webhook_server import Webhook

Tree = dict[str, Any]
GROUP = "example.com"
V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
OF = f"conversion webhook for {V1}, Kind=Thing"


def converted(review: Tree) -> Tree:
    """The answer of a correct webhook."""
    request = review["request"]
    wanted = request["desiredAPIVersion"]
    names = ("host", "address") if wanted == V2 else ("address", "host")
    objects = json.loads(json.dumps(request["objects"]))
    for tree in objects:
        tree["apiVersion"] = wanted
        tree["spec"][names[1]] = tree["spec"].pop(names[0])
    result = {"status": "Success"}
    response = {"uid": request["uid"], "result": result, "convertedObjects": objects}
    return {"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response}


def thing(name: str = "a", version: str = V1, **spec: Any) -> Tree:
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "generation": 1,
        "labels": {"l": "1"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    field = {V1: "host", V2: "address"}.get(version, "host")
    return {"apiVersion": version, "kind": "Thing", "metadata": metadata, "spec": {field: "x", **spec}}


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path, converted) as found:
        yield found


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def converters(registry: CollectorRegistry) -> AsyncIterator[Converters]:
    client = WebhookClient(None, WebhookLimits(answer=1 << 20))
    yield Converters(client.post, Offload(), ConversionMetrics(registry))
    await client.close()


def definition(
    config: Tree | None, versions: tuple[str, ...] = ("v1", "v2"), reviews: tuple[str, ...] = ("v1",)
) -> Tree:
    conversion: Tree = {"strategy": "None"}
    if config is not None:
        webhook = {"clientConfig": config, "conversionReviewVersions": list(reviews)}
        conversion = {"strategy": "Webhook", "webhook": webhook}
    spec = {"group": GROUP, "versions": [{"name": name} for name in versions], "conversion": conversion}
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


async def test_single_version_needs_no_converter(converters: Converters, hook: Webhook) -> None:
    assert converters.of(definition(None, ("v1",))) is None
    assert converters.of(definition(hook.config, ("v1",))) is None


async def test_strategy_none_changes_only_api_version(converters: Converters) -> None:
    convert = converters.of(definition(None))
    assert convert is not None
    first, second = thing("a"), thing("b", V2)
    assert await convert([first, second], V2) == [{**first, "apiVersion": V2}, second]
    assert first["apiVersion"] == V1


@pytest.mark.parametrize("webhook", [False, True])
async def test_conversion_to_unknown_version_fails(converters: Converters, hook: Webhook, webhook: bool) -> None:
    convert = converters.of(definition(hook.config if webhook else None))
    assert convert is not None
    with pytest.raises(ConversionFailed, match=r"to an invalid group/version: example.com/v3"):
        await convert([thing()], f"{GROUP}/v3")
    with pytest.raises(ConversionFailed, match=r"from an invalid group/version: example.com/v0"):
        await convert([thing(version=f"{GROUP}/v0")], V2)
    assert hook.take() == []


async def test_webhook_is_called_once_per_conversion(
    converters: Converters, hook: Webhook, registry: CollectorRegistry
) -> None:
    convert = converters.of(definition(hook.config))
    assert convert is not None
    trees = [thing("a"), thing("b", V2), thing("c")]
    before = json.loads(json.dumps(trees))
    found = await convert(trees, V2)
    assert [(tree["apiVersion"], tree["metadata"], tree["spec"]) for tree in found] == [
        (V2, tree["metadata"], {"address": "x"}) for tree in trees
    ]
    assert trees == before
    assert found[1] is trees[1]
    (review,) = hook.take()
    assert (review["apiVersion"], review["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert review["request"]["desiredAPIVersion"] == V2
    assert review["request"]["objects"] == [trees[0], trees[2]]
    assert await convert([trees[1]], V2) == [trees[1]]
    assert hook.take() == []
    output = generate_latest(registry).decode()
    assert 'apiserver_conversion_webhook_request_total{failure_type="",result="success"} 1.0' in output
    labels = 'crd_name="things.example.com",from_version="v1",succeeded="true",to_version="v2"'
    assert f"apiserver_crd_conversion_webhook_duration_seconds_count{{{labels}}} 1.0" in output


async def test_many_objects_are_converted_in_batches(converters: Converters, hook: Webhook) -> None:
    convert = converters.of(definition(hook.config))
    assert convert is not None
    trees = [thing(f"n{number}") for number in range(450)]
    assert [tree["metadata"]["name"] for tree in await convert(trees, V2)] == [f"n{number}" for number in range(450)]
    assert [len(review["request"]["objects"]) for review in hook.take()] == [200, 200, 50]
    large = [thing(f"n{number}", more="x" * 400_000) for number in range(4)]
    await convert(large[:2], V2)
    assert [len(review["request"]["objects"]) for review in hook.take()] == [2]
    full = [thing(f"n{number}", more=list(range(15_000))) for number in range(2)]
    await convert(full, V2)
    assert [len(review["request"]["objects"]) for review in hook.take()] == [1, 1]


async def test_webhook_may_change_only_labels_and_annotations(converters: Converters, hook: Webhook) -> None:
    def change(tree: Tree) -> None:
        tree["metadata"] |= {"generation": 77, "finalizers": ["a/b"], "labels": {"n": "2"}, "resourceVersion": "5"}
        tree["metadata"] |= {"annotations": {"k": "v"}, "creationTimestamp": "2001-01-01T00:00:00Z"}

    hook.answer = changing_objects(change)
    convert = converters.of(definition(hook.config))
    assert convert is not None
    original = thing()["metadata"]
    (found,) = await convert([thing()], V2)
    assert found["metadata"] == {**original, "labels": {"n": "2"}, "annotations": {"k": "v"}}
    hook.answer = changing_objects(lambda tree: tree["metadata"].pop("labels"))
    (found,) = await convert([thing()], V2)
    assert found["metadata"] == {name: value for name, value in original.items() if name != "labels"}


def changing_objects(change: Callable[[Tree], Any]) -> Callable[[Tree], Tree]:
    def answer(review: Tree) -> Tree:
        found = converted(review)
        for tree in found["response"]["convertedObjects"]:
            change(tree)
        return found

    return answer


def changing_review(change: Callable[[Tree], Any]) -> Callable[[Tree], Tree]:
    def answer(review: Tree) -> Tree:
        found = converted(review)
        change(found)
        return found

    return answer


def changing_response(**changes: Any) -> Callable[[Tree], Tree]:
    return changing_review(lambda found: found["response"].update(changes))


def changing_metadata(**changes: Any) -> Callable[[Tree], Tree]:
    return changing_objects(lambda tree: tree["metadata"].update(changes))


FAILED, INVALID, METADATA = f"{OF} failed: ", f"{OF} returned invalid object", f"{OF} returned invalid metadata: "
REFUSED = {
    "a message": (changing_response(result={"status": "Failure", "message": "no way"}), f"{FAILED}no way"),
    "no message": (
        changing_response(result={"status": "Failure"}),
        f"{FAILED}response.result.status was 'Failure', not 'Success'",
    ),
    "no result": (changing_response(result=None), f"{FAILED}response.result.status was '', not 'Success'"),
    "no response": (changing_review(lambda found: found.pop("response")), f"{FAILED}no response provided"),
    "nothing": (
        lambda _: {},
        f"{FAILED}expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
    ),
    "another kind": (
        changing_review(lambda found: found.update(kind="Foo")),
        f'{FAILED}no kind "Foo" is registered for version "apiextensions.k8s.io/v1" in scheme',
    ),
    "another version": (
        changing_review(lambda found: found.update(apiVersion="apiextensions.k8s.io/v1beta1")),
        f"{FAILED}converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
    ),
    "no JSON": (
        lambda _: b"not json",
        f"{FAILED}couldn't get version/kind; json parse error: json: cannot unmarshal string",
    ),
    "no objects": (changing_response(convertedObjects=[]), f"{OF} returned 0 objects, expected 1"),
    "too many objects": (changing_response(convertedObjects=[{}, {}]), f"{OF} returned 2 objects, expected 1"),
    "null": (changing_response(convertedObjects=[None]), "unexpected end of JSON input"),
    "a text": (
        changing_response(convertedObjects=["x"]),
        "json: cannot unmarshal string into Go value of type map[string]interface {}",
    ),
    "no kind": (changing_objects(lambda tree: tree.pop("kind")), "Object 'Kind' is missing in '{"),
    "no version": (
        changing_objects(lambda tree: tree.pop("apiVersion")),
        f"{INVALID} at index 0: invalid groupVersion (expected {V2}, received )",
    ),
    "the old version": (
        changing_objects(lambda tree: tree.update(apiVersion=V1)),
        f"{INVALID} at index 0: invalid groupVersion (expected {V2}, received {V1})",
    ),
    "another kind of object": (
        changing_objects(lambda tree: tree.update(kind="Other")),
        f"{INVALID} at index 0: invalid kind (expected Thing, received Other)",
    ),
    "another name": (changing_metadata(name="b"), f"{INVALID}: must have the same name: a != b"),
    "another namespace": (changing_metadata(namespace="b"), f"{INVALID}: must have the same namespace: ns != b"),
    "another uid of the object": (changing_metadata(uid="b"), f"{INVALID}: must have the same UID: uid-a != b"),
    "no metadata": (changing_objects(lambda tree: tree.pop("metadata")), f"{INVALID}: must have the same name: a != "),
    "metadata that are none": (
        changing_objects(lambda tree: tree.update(metadata="x")),
        f"{INVALID}: must have the same name: a != ",
    ),
    "labels that are none": (
        changing_metadata(labels=["x"]),
        f"{METADATA}invalid metadata.labels of type []interface {{}} in converted object",
    ),
    "a label that is a number": (
        changing_metadata(labels={"x": 1}),
        f"{METADATA}metadata.labels[x] must be a string, but is int64 in converted object",
    ),
    "labels of a wrong form": (
        changing_metadata(labels={"x y": "a b"}),
        f'{METADATA}[metadata.labels: Invalid value: "x y": ',
    ),
    "an annotation of a wrong form": (
        changing_metadata(annotations={"x y": "a"}),
        f'{METADATA}metadata.annotation: Invalid value: "x y": ',
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
async def test_malformed_conversion_is_rejected(converters: Converters, hook: Webhook, what: str) -> None:
    hook.answer, why = REFUSED[what]
    convert = converters.of(definition(hook.config))
    assert convert is not None
    with pytest.raises(ConversionFailed) as refusal:
        await convert([thing()], V2)
    assert refusal.value.message.startswith(why)
    status = json.loads(refusal.value.status().encode())
    assert (status["code"], status.get("reason")) == (500, None)


async def test_response_with_other_uid_is_rejected(
    converters: Converters, hook: Webhook, registry: CollectorRegistry
) -> None:
    hook.answer = changing_response(uid="other")
    convert = converters.of(definition(hook.config))
    assert convert is not None
    with pytest.raises(ConversionFailed) as refusal:
        await convert([thing()], V2)
    uid = hook.take()[0]["request"]["uid"]
    assert refusal.value.message == f'{FAILED}expected response.uid="{uid}", got "other"'
    malformed = 'failure_type="conversion_webhook_malformed_response_failure",result="failure"'
    assert f"apiserver_conversion_webhook_request_total{{{malformed}}} 1.0" in generate_latest(registry).decode()


async def test_error_names_the_wrong_object(converters: Converters, hook: Webhook) -> None:
    def change(found: Tree) -> None:
        found["response"]["convertedObjects"][1]["metadata"]["uid"] = "other"

    hook.answer = changing_review(change)
    convert = converters.of(definition(hook.config))
    assert convert is not None
    why = f"{OF} returned invalid converted object at index 1: must have the same UID: uid-b != other"
    with pytest.raises(ConversionFailed, match=why):
        await convert([thing("a"), thing("b")], V2)
    hook.answer = changing_review(lambda found: found["response"]["convertedObjects"].pop())
    with pytest.raises(ConversionFailed, match="returned 1 objects, expected 2"):
        await convert([thing("a"), thing("b")], V2)


async def test_v1beta1_reviews_need_no_uid(converters: Converters, hook: Webhook) -> None:
    hook.answer = changing_response(uid="")
    convert = converters.of(definition(hook.config, reviews=("v7", "v1beta1", "v1")))
    assert convert is not None
    (found,) = await convert([thing()], V2)
    assert found["apiVersion"] == V2
    assert hook.take()[0]["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    unknown = converters.of(definition(hook.config, reviews=("v7",)))
    assert unknown is not None
    with pytest.raises(ConversionFailed, match="no supported conversion review versions"):
        await unknown([thing()], V2)


async def test_oversized_webhook_answer_is_rejected(converters: Converters, hook: Webhook) -> None:
    convert = converters.of(definition(hook.config))
    assert convert is not None
    for answer, why in (
        (b"x" * (2 << 20), "the answer is larger than 1048576 bytes"),
        (b'{"a":[' + b"{}," * 200_000 + b"{}]}", "more than 100000 values"),
        (b"[" * 50_000, "cannot unmarshal"),
    ):
        hook.answer = lambda _, answer=answer: answer
        with pytest.raises(ConversionFailed, match=why):
            await convert([thing()], V2)
    hook.answer = changing_response(result={"status": "Failure", "message": "x" * 500_000})
    with pytest.raises(ConversionFailed) as refusal:
        await convert([thing()], V2)
    assert len(refusal.value.message) < 3000


async def test_hanging_webhook_times_out(
    converters: Converters, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: Tree) -> Tree:
        await asyncio.sleep(60)
        return {}

    monkeypatch.setattr("apiserver_stub.apis.apiextensions.conversion._TIMEOUT", 0.2)
    hook.answer = hang
    convert = converters.of(definition(hook.config))
    assert convert is not None
    with pytest.raises(ApiError, match="context deadline exceeded"):
        await convert([thing()], V2)
