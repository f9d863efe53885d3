"""The typed client against a small handler in the same process."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from controller_manager.common.api import errors
from controller_manager.common.api.core import EVENTS, NAMESPACES, PODS, Namespace, NamespaceSpec, Pod
from controller_manager.common.api.model import BareObject, Object, ObjectMeta, PartialObject
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.framework import Client, TransportError
from controller_manager.framework.client.client import JSON_PATCH
from controller_manager.framework.client.codec import WriteResult
from controller_manager.framework.client.requests import ClientMetrics, Throttle
from tests.controller_manager.framework.client.scripted_server import POD, Chunks, Script, answer, client_of, refusal

pytestmark = pytest.mark.virtual

KEY = Key("default", "a")


def echo(request: Request) -> Response:
    return Response(200, {}, request.body)


async def test_get_decodes_and_keeps_raw_bytes() -> None:
    script = Script(answer(POD))
    pod = await client_of(script).get(PODS, KEY, resource_version="3")
    assert (pod.metadata.name, pod.spec.node_name, msgspec.json.decode(pod.raw)) == ("a", "n1", POD)
    [request] = script.requests
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/default/pods/a")
    assert request.query == (("resourceVersion", "3"),)
    assert request.headers["accept"] == "application/json"
    assert "content-type" not in request.headers


async def test_error_response_raises_its_class() -> None:
    script = Script(refusal(errors.not_found("", "pods", "a")))
    with pytest.raises(errors.NotFound, match='pods "a" not found') as caught:
        await client_of(script).get(PODS, KEY)
    assert caught.value.details is not None
    assert caught.value.details.name == "a"


async def test_list_items_have_api_version_and_kind() -> None:
    items = [{key: value for key, value in POD.items() if key not in ("apiVersion", "kind")}]
    meta = {"resourceVersion": "9", "continue": "next", "remainingItemCount": 4}
    script = Script(answer({"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items}))
    chosen: dict[str, Any] = {"labels": "a=b", "fields": "spec.nodeName=n1", "limit": 1, "continue_token": "t"}
    page = await client_of(script).list(PODS, "default", **chosen, resource_version="1", match="Exact")
    assert (page.resource_version, page.continue_token, page.remaining) == ("9", "next", 4)
    [pod] = page.items
    assert (pod.api_version, pod.kind, pod.raw) == ("v1", "Pod", msgspec.json.encode(items[0]))
    assert script.requests[0].query == (
        ("labelSelector", "a=b"),
        ("fieldSelector", "spec.nodeName=n1"),
        ("limit", "1"),
        ("continue", "t"),
        ("resourceVersion", "1"),
        ("resourceVersionMatch", "Exact"),
    )


async def test_list_may_be_null_or_streamed() -> None:
    body = Chunks(b'{"metadata":{"resourceVersion":', b'"9"},"items":null}')
    page = await client_of(Script(Response(200, {}, body))).list(PODS)
    assert (page.items, page.resource_version, page.continue_token) == ([], "9", "")
    assert body.closed


async def test_long_list_yields_while_decoding() -> None:
    items = [{"metadata": {"name": f"p{number}"}} for number in range(2000)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        page = await client_of(Script(answer({"items": items}))).list(PODS)
        counting.cancel()
    assert [pod.metadata.name for pod in page.items] == [f"p{number}" for number in range(2000)]
    assert turns >= 3


async def test_metadata_only_sets_accept_and_keeps_no_bytes() -> None:
    script = Script(answer({"items": [{"metadata": {"name": "a"}, "kind": "PartialObjectMetadata"}]}), answer(POD))
    client, partial = client_of(script), PODS.metadata_only()
    [found] = (await client.list(partial)).items
    assert (found.raw, found.kind, found.metadata.name) == (b"", "Pod", "a")
    assert (await client.get(partial, KEY)).raw == b""
    accepted = [request.headers["accept"].partition(",")[0] for request in script.requests]
    assert accepted == [
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ]


async def test_bare_objects_have_no_annotations() -> None:
    meta = {"name": "a", "labels": {"app": "b"}, "annotations": {"c": "d" * 1000}, "finalizers": ["e"]}
    script = Script(answer({"items": [{"metadata": meta}]}), answer({"metadata": meta}))
    client, bare = client_of(script), replace(PODS.metadata_only(), type=BareObject)
    for found in (*(await client.list(bare)).items, await client.get(bare, KEY)):
        assert found.metadata == ObjectMeta(name="a", finalizers=("e",))


async def test_metadata_only_object_cannot_be_updated() -> None:
    with pytest.raises(TypeError, match="metadata only"):
        await client_of(Script()).update(
            PODS.metadata_only(), PartialObject(metadata=ObjectMeta(name="a", namespace="b"))
        )


async def test_update_preserves_unknown_fields() -> None:
    script = Script(answer({"items": [{key: POD[key] for key in ("metadata", "spec")}]}), echo)
    client = client_of(script)
    [pod] = (await client.list(PODS)).items
    spec = msgspec.structs.replace(pod.spec, node_name="n2")
    await client.update(PODS, msgspec.structs.replace(pod, spec=spec), subresource="status")
    request = script.requests[1]
    assert (request.method, request.path) == ("PUT", "/api/v1/namespaces/default/pods/a/status")
    assert request.headers["content-type"] == "application/json"
    assert msgspec.json.decode(request.body) == {**POD, "spec": {"nodeName": "n2", "priority": 5}}


async def test_create_sets_type_and_posts_to_collection() -> None:
    script = Script(echo, echo)
    client = client_of(script)
    await client.create(PODS, Pod(metadata=ObjectMeta(generate_name="a-", namespace="default")))
    await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="n"), spec=NamespaceSpec(finalizers=("k",))))
    assert [request.path for request in script.requests] == ["/api/v1/namespaces/default/pods", "/api/v1/namespaces"]
    assert msgspec.json.decode(script.requests[0].body) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "a-", "namespace": "default"},
    }


async def test_patch_sends_document_with_media_type() -> None:
    script = Script(answer(POD), answer(POD))
    client = client_of(script)
    await client.patch(PODS, KEY, {"spec": {"x": None}}, subresource="status")
    await client.patch(PODS, KEY, [{"op": "remove", "path": "/x"}], JSON_PATCH)
    assert [request.body for request in script.requests] == [b'{"spec":{"x":null}}', b'[{"op":"remove","path":"/x"}]']
    assert [request.headers["content-type"] for request in script.requests] == [
        "application/merge-patch+json",
        "application/json-patch+json",
    ]


async def test_delete_sends_only_given_options() -> None:
    script = Script(answer({"kind": "Status"}), answer({"kind": "Status"}), answer({"kind": "Status"}))
    client = client_of(script)
    await client.delete(PODS, KEY)
    await client.delete(PODS, KEY, grace=0, propagation="Orphan", uid="u", resource_version="5")
    await client.delete_collection(PODS, "default", labels="a=b", grace=0)
    assert script.requests[0].body == b""
    assert msgspec.json.decode(script.requests[1].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Orphan",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "5"},
    }
    assert (script.requests[2].path, script.requests[2].query) == (
        "/api/v1/namespaces/default/pods",
        (("labelSelector", "a=b"),),
    )


async def test_writes_are_reported_with_version() -> None:
    reported: list[WriteResult] = []
    removed = answer({"kind": "Status", "details": {"uid": "u"}})
    script = Script(
        answer(POD), answer(POD), answer(POD), answer(POD), removed, answer({"kind": "Status"}), answer(POD)
    )
    client = client_of(script).derive(on_write=reported.append)
    pod = Pod(metadata=ObjectMeta(name="a", namespace="default"))
    await client.create(PODS, pod)
    await client.update(PODS, pod)
    await client.patch(PODS, KEY, {})
    for _ in range(3):
        await client.delete(PODS, KEY)
    await client.get(PODS, KEY)
    assert reported == [WriteResult(PODS, KEY, "7")] * 4 + [WriteResult(PODS, KEY, gone="u")]


async def test_write_without_change_is_not_reported() -> None:
    reported: list[WriteResult] = []
    client = client_of(Script(*[answer(POD)] * 5)).derive(on_write=reported.append, known_version=lambda *_: "7")
    await client.apply(PODS, KEY, {}, "me")
    await client.patch(PODS, KEY, {})
    await client.update(PODS, Pod(metadata=ObjectMeta(name="a", namespace="default", resource_version="7")))
    assert reported == []
    await client.update(PODS, Pod(metadata=ObjectMeta(name="a", namespace="default", resource_version="6")))
    assert reported == [WriteResult(PODS, KEY, "7")]
    await client.create(PODS, Pod(metadata=ObjectMeta(name="a", namespace="default")))
    assert reported == [WriteResult(PODS, KEY, "7")] * 2


async def test_dry_run_sends_options_and_is_not_reported() -> None:
    reported: list[WriteResult] = []
    script = Script(*[answer(POD)] * 6)
    client, pod = (
        client_of(script).derive(on_write=reported.append),
        Pod(metadata=ObjectMeta(name="a", namespace="default")),
    )
    await client.create(PODS, pod, dry_run=True, field_validation="Strict")
    await client.update(PODS, pod, dry_run=True, field_validation="Strict")
    await client.patch(PODS, KEY, {}, dry_run=True, field_validation="Strict")
    await client.apply(PODS, KEY, {}, "me", dry_run=True, field_validation="Strict")
    await client.delete(PODS, KEY, dry_run=True)
    await client.delete_collection(PODS, "default", labels="a=b", dry_run=True)
    both = (("dryRun", "All"), ("fieldValidation", "Strict"))
    assert [request.query for request in script.requests] == [
        *[both] * 3,
        (("fieldManager", "me"), ("force", "true"), *both),
        both[:1],
        (("labelSelector", "a=b"), *both[:1]),
    ]
    assert reported == []


@pytest.mark.parametrize("key", [Key("default", ""), Key("default", "a/b"), Key("default", ".."), Key("", "a")])
async def test_invalid_key_is_refused_by_client(key: Key) -> None:
    with pytest.raises(errors.BadRequest):
        await client_of(Script()).delete(PODS, key)


async def test_missing_namespace_is_refused_by_client() -> None:
    with pytest.raises(errors.BadRequest):
        await client_of(Script()).create(PODS, Pod(metadata=ObjectMeta(name="a")))


async def test_undecodable_response_is_an_error_with_path() -> None:
    script = Script(answer({"metadata": {"name": []}}), Response(200, {}, b"{"), answer({"items": 3}))
    client = client_of(script)
    with pytest.raises(errors.InternalError, match=r"pods is unreadable.*metadata\.name"):
        await client.get(PODS, KEY)
    with pytest.raises(errors.InternalError):
        await client.get(PODS, KEY)
    with pytest.raises(errors.InternalError):
        await client.list(PODS)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
async def test_undecodable_item_is_left_out_of_list(separators: tuple[str, str]) -> None:
    first, broken, last = ({"metadata": {"name": name, "namespace": "default"}, "spec": {}} for name in "abc")
    broken = {"metadata": {**broken["metadata"], "uid": "u", "resourceVersion": "7"}, "spec": 3}
    body = json.dumps({"metadata": {"continue": "on"}, "items": [first, broken, last, None]}, separators=separators)
    page = await client_of(Script(Response(200, {}, body.encode()))).list(PODS)
    assert [pod.metadata.name for pod in page.items] == ["a", "c"]
    one, nothing = page.unreadable
    assert one.object.metadata == ObjectMeta(name="b", namespace="default", uid="u", resource_version="7")
    assert "$.spec" in one.why
    assert nothing.object.metadata == ObjectMeta()
    assert page.continue_token == "on"


@pytest.mark.parametrize("shape", [{"items": None, "metadata": {}}, {"metadata": {"continue": None}}, {}])
async def test_empty_list_in_any_form_is_empty(shape: dict[str, Any]) -> None:
    page = await client_of(Script(answer(shape))).list(PODS)
    assert (page.items, page.continue_token, page.unreadable) == ([], "", [])


async def test_error_status_with_nulls_is_decoded() -> None:
    tree = {"kind": "Status", "metadata": None, "message": "no", "reason": "Conflict", "code": 409}
    tree["details"] = {"name": "a", "causes": None, "retryAfterSeconds": None}
    with pytest.raises(errors.Conflict, match="no") as raised:
        await client_of(Script(answer(tree, 409))).get(PODS, KEY)
    assert raised.value.details == errors.Details(name="a")


async def test_request_is_retried_after_retry_after() -> None:
    slow = errors.TooManyRequests("slow down")
    script = Script(
        refusal(slow, retry_after="3"), refusal(errors.ServiceUnavailable("x"), retry_after="4"), answer(POD)
    )
    began = monotonic()
    await client_of(script).get(PODS, KEY)
    assert monotonic() - began == pytest.approx(7)


@pytest.mark.parametrize("headers", [{}, {"retry_after": "61"}, {"retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"}])
async def test_request_without_usable_retry_after_is_not_retried(headers: dict[str, str]) -> None:
    script = Script(refusal(errors.ServiceUnavailable("down"), **headers))
    with pytest.raises(errors.ServiceUnavailable, match="down"):
        await client_of(script).get(PODS, KEY)


async def test_conflicts_are_not_retried_and_retries_are_bounded() -> None:
    script = Script(refusal(errors.conflict("", "pods", "a", "changed"), retry_after="1"))
    with pytest.raises(errors.Conflict):
        await client_of(script).update(PODS, Pod(metadata=ObjectMeta(name="a", namespace="b")))
    script, began = Script(*[refusal(errors.TooManyRequests("no"), retry_after="1")] * 20), monotonic()
    with pytest.raises(errors.TooManyRequests):
        await client_of(script).get(PODS, KEY)
    assert len(script.requests) == 10
    assert monotonic() - began == pytest.approx(9)


async def test_throttled_requests_wait_and_are_counted() -> None:
    registry = CollectorRegistry()
    client = client_of(Script(*[answer(POD)] * 5), throttle=Throttle(2, 3), metrics=ClientMetrics(registry))
    began = monotonic()
    for _ in range(5):
        await client.get(PODS, KEY)
    assert monotonic() - began == pytest.approx(1.0)
    labels = {"code": "200", "method": "GET", "host": "in-process"}
    assert registry.get_sample_value("rest_client_requests_total", labels) == 5
    waited = registry.get_sample_value(
        "rest_client_rate_limiter_duration_seconds_sum", {"verb": "GET", "host": "in-process"}
    )
    assert waited == pytest.approx(1.0)
    asked = {"verb": "GET", "host": "in-process"}
    assert registry.get_sample_value("rest_client_request_duration_seconds_count", asked) == 5


async def test_unanswered_request_is_counted_as_error() -> None:
    registry = CollectorRegistry()

    async def down(_: Request) -> Response:
        raise TransportError("no")

    with pytest.raises(TransportError):
        await Client(InProcessTransport(down), metrics=ClientMetrics(registry)).get(PODS, KEY)
    labels = {"code": "<error>", "method": "GET", "host": "in-process"}
    assert registry.get_sample_value("rest_client_requests_total", labels) == 1


async def test_in_process_transport_sends_identity() -> None:
    script = Script(answer(POD))
    transport = InProcessTransport(script, token="secret", certificate=Certificate("me"))
    await Client(transport, user_agent="tester").get(PODS, KEY)
    [request] = script.requests
    assert request.certificate == Certificate("me")
    assert (request.headers["authorization"], request.headers["user-agent"]) == ("Bearer secret", "tester")


async def test_other_model_reads_subresource() -> None:
    class Scale(Object):
        pass

    scale = Resource("apps", "v1", "deployments", "Scale", True, Scale)
    script = Script(answer({"metadata": {"name": "a"}}))
    found = await client_of(script).get(scale, KEY, subresource="scale")
    assert isinstance(found, Scale)
    assert script.requests[0].path == "/apis/apps/v1/namespaces/default/deployments/a/scale"
    assert EVENTS.path("x") == "/api/v1/namespaces/x/events"


@pytest.mark.parametrize("template", [{"metadata": {"name": "data"}}, {"a": 1}])
async def test_list_is_decoded_equally_in_any_formatting(template: dict[str, Any]) -> None:
    items = [{"metadata": {"name": f"p{number}"}, "spec": {"templates": [template, template]}} for number in range(3)]
    tree = {"metadata": {"resourceVersion": "4", "continue": "t"}, "items": items}
    pretty = Response(200, {}, msgspec.json.format(msgspec.json.encode(tree)))
    client = client_of(Script(answer(tree), pretty))
    for _ in range(2):
        page = await client.list(PODS)
        assert [msgspec.json.decode(pod.raw) for pod in page.items] == items
        assert [pod.metadata.name for pod in page.items] == ["p0", "p1", "p2"]
        assert (page.resource_version, page.continue_token) == ("4", "t")


async def test_apply_sends_manager_and_forces() -> None:
    script = Script(answer(POD), answer(POD))
    client = client_of(script)
    await client.apply(PODS, KEY, {"spec": {"x": 1}}, "me")
    await client.apply(PODS, KEY, {"spec": {"x": 1}}, "me", uid="u")
    sent = [msgspec.json.decode(request.body) for request in script.requests]
    named = {"name": KEY.name, "namespace": KEY.namespace}
    assert sent[0] == {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": {"x": 1}}
    assert sent[1]["metadata"] == {**named, "uid": "u"}
    request = script.requests[0]
    assert request.query == (("fieldManager", "me"), ("force", "true"))
    assert request.headers["content-type"] == "application/apply-patch+yaml"


@pytest.mark.parametrize(
    "metadata", [{"labels": {"a": "b"}}, ObjectMeta(name="a", labels={"a": "b"})], ids=["mapping", "model"]
)
async def test_apply_of_metadata_keeps_the_name_and_the_labels(metadata: Any) -> None:
    script = Script(answer(POD))
    await client_of(script).apply(PODS, KEY, {"metadata": metadata, "spec": {"x": 1}}, "me")
    sent = msgspec.json.decode(script.requests[0].body)
    assert sent["metadata"] == {"name": "a", "namespace": "default", "labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metadata": {"name": "b"}}, r"metadata\.name of the applied fields is 'b', of the object 'a'"),
        ({"metadata": {"namespace": "n"}}, r"metadata\.namespace of the applied fields is 'n'"),
        ({"metadata": {"uid": "v"}}, r"metadata\.uid of the applied fields is 'v'"),
        ({"kind": "Service"}, r"kind of the applied fields is 'Service', of the object 'Pod'"),
        ({"apiVersion": "v2"}, r"apiVersion of the applied fields is 'v2'"),
    ],
)
async def test_apply_of_fields_of_another_object_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(errors.BadRequest, match=message):
        await client_of(Script()).apply(PODS, KEY, fields, "me", uid="u")
