"""Conversion of custom objects between versions of their definition: by setting apiVersion, or by a webhook.

A webhook may change labels, annotations, and all fields except the identity and other metadata; other changes are
rejected or ignored (API concepts, Versions in CustomResourceDefinitions, Webhook conversion).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from prometheus_client import CollectorRegistry

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.common.offload import Offload, at_once, is_large
from apiserver_stub.common.spans import current_span
from apiserver_stub.encode.json import encode
from apiserver_stub.kinds.resource_info import Converter
from apiserver_stub.kinds.rules import metadata
from apiserver_stub.kinds.values.trees import deep_copy
from apiserver_stub.webhooks.client import WebhookConfig, WebhookError, decode_review, json_type, type_of_review
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.base.random import random_source

_GROUP, _REVIEW, _VERSIONS = f"apiextensions.{GROUP_DOMAIN}", "ConversionReview", ("v1", "v1beta1")
_TIMEOUT = 30.0  # seconds
# Limits of one webhook call: objects, their bytes, and approximate number of values.
_MOST_OBJECTS, _MOST_BYTES, _MOST_VALUES = 200, 1 << 20, 20_000
_LONGEST_WORDS = 2000  # characters of a webhook's message that are returned
_LABELS_AT: FieldPath = ((None, "metadata"), "labels")
_ANNOTATIONS_AT: FieldPath = ((None, "metadata"), "annotation")

_OUTCOME = ("result", "failure_type")
_REQUESTS = Family(
    "apiserver_conversion_webhook_request_total", "Number of conversion requests to webhooks.", "counter", _OUTCOME
)
_SECONDS = Family(
    "apiserver_conversion_webhook_duration_seconds",
    "Seconds spent in conversion webhooks.",
    "histogram",
    _OUTCOME,
    (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0),
)
_BY_DEFINITION = Family(
    "apiserver_crd_conversion_webhook_duration_seconds",
    "Seconds spent converting custom objects by webhooks.",
    "histogram",
    ("crd_name", "from_version", "to_version", "succeeded"),
    tuple(0.001 * 2**power for power in range(15)),
)


class ConversionFailed(ApiError):
    """Objects could not be converted. Clients recognize it by its code only."""

    code, reason = 500, ""


class Post(Protocol):
    """Calls a webhook and returns its response. Raises `WebhookError`."""

    async def __call__(self, config: WebhookConfig, body: bytes, timeout: float) -> bytes: ...


class ConversionMetrics:
    """Metrics of webhook conversions, in total and per definition."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._requests = Counters(_REQUESTS, registry)
        self._seconds = Histograms(_SECONDS, registry)
        self._by_definition = Histograms(_BY_DEFINITION, registry)

    def observe(self, definition: str, came: str, wanted: str, seconds: float, failure: str) -> None:
        """Record a finished request. `failure` is the type of the error, empty for success."""
        outcome = ("failure", f"conversion_webhook_{failure}_failure") if failure else ("success", "")
        self._requests.add(*outcome)
        self._seconds.observe(seconds, *outcome)
        self._by_definition.observe(seconds, definition, came, wanted, "false" if failure else "true")


class Converters:
    """Creates the converters of definitions; `post` calls webhooks."""

    def __init__(self, post: Post, offload: Offload, metrics: ConversionMetrics | None = None) -> None:
        self._post = post
        self._offload = offload
        self._metrics = metrics or ConversionMetrics()

    def of(self, definition: Tree) -> Converter | None:
        """Return the converter for the objects of a valid definition; None if it has a single version."""
        spec = definition["spec"]
        versions = frozenset(f"{spec['group']}/{version['name']}" for version in spec["versions"])
        if len(versions) < 2:
            return None
        conversion = spec.get("conversion") or {}
        if conversion.get("strategy") != "Webhook":
            return _Relabelled(versions, self._offload)
        config, review_versions = (
            conversion["webhook"]["clientConfig"],
            conversion["webhook"]["conversionReviewVersions"],
        )
        known = [version for version in review_versions if version in _VERSIONS]
        review = _Review(definition["metadata"]["name"], known[0] if known else "", config)
        return _Asked(versions, review, self._post, self._offload, self._metrics)


class _Versions:
    """Checks that versions exist."""

    def __init__(self, versions: frozenset[str]) -> None:
        self._versions = versions

    def _check(self, trees: Sequence[Tree], api_version: str) -> None:
        if api_version not in self._versions:
            raise ConversionFailed(f"request to convert CR to an invalid group/version: {api_version}")
        for tree in trees:
            if tree["apiVersion"] not in self._versions:
                raise ConversionFailed(f"request to convert CR from an invalid group/version: {tree['apiVersion']}")


class _Relabelled(_Versions):
    """The strategy `None`: only apiVersion is changed."""

    def __init__(self, versions: frozenset[str], offload: Offload) -> None:
        super().__init__(versions)
        self._offload = offload

    async def __call__(self, trees: Sequence[Tree], api_version: str, /) -> list[Tree]:
        self._check(trees, api_version)
        others = (tree for tree in trees if tree["apiVersion"] != api_version)
        run = self._offload.run if any(is_large(encode(tree)) for tree in others) else at_once
        return await run(partial(_relabelled, trees, api_version))


def _relabelled(trees: Sequence[Tree], api_version: str) -> list[Tree]:
    return [
        tree if tree["apiVersion"] == api_version else {**deep_copy(tree), "apiVersion": api_version} for tree in trees
    ]


class _Review(msgspec.Struct, frozen=True):
    """How to call a definition's webhook: the ConversionReview version (empty if none is supported) and its
    `clientConfig`.
    """

    definition: str
    version: str
    config: Mapping[str, Any]


class _Asked(_Versions):
    """The strategy `Webhook`. Objects are sent in batches, one request after the other."""

    def __init__(
        self, versions: frozenset[str], review: _Review, post: Post, offload: Offload, metrics: ConversionMetrics
    ) -> None:
        super().__init__(versions)
        self._review = review
        self._post = post
        self._offload = offload
        self._metrics = metrics

    async def __call__(self, trees: Sequence[Tree], api_version: str, /) -> list[Tree]:
        self._check(trees, api_version)
        found = list(trees)
        others = (index for index, tree in enumerate(trees) if tree["apiVersion"] != api_version)
        for batch in _batches((index, encode(trees[index])) for index in others):
            asked = [trees[index] for index, _ in batch]
            converted = await self._converted(asked, [data for _, data in batch], api_version)
            for (index, _), tree in zip(batch, converted, strict=True):
                found[index] = tree
        return found

    async def _converted(self, trees: Sequence[Tree], objects: Sequence[bytes], api_version: str) -> list[Tree]:
        began, failure = monotonic(), "call"
        try:
            converted = await self._ask(trees, objects, api_version)
            failure = ""
            return converted
        except _Failure as problem:
            failure = problem.type
            raise ConversionFailed(_cut(problem.message)) from problem
        finally:
            came, wanted = trees[0]["apiVersion"].rpartition("/")[2], api_version.rpartition("/")[2]
            self._metrics.observe(self._review.definition, came, wanted, monotonic() - began, failure)

    async def _ask(self, trees: Sequence[Tree], objects: Sequence[bytes], api_version: str) -> list[Tree]:
        """Return the objects that the webhook converted. Raises `_Failure`."""
        version, uid = self._review.version, random_source().uid()
        if not version:
            raise _Failure("call", "no supported conversion review versions")
        request = {"uid": uid, "desiredAPIVersion": api_version, "objects": [msgspec.Raw(data) for data in objects]}
        body = encode({"kind": _REVIEW, "apiVersion": f"{_GROUP}/{version}", "request": request})
        webhook = f"conversion webhook for {trees[0]['apiVersion']}, Kind={trees[0].get('kind', '')}"
        try:
            answer = await self._call(
                body, {"desired-api-version": api_version, "object-count": len(trees), "UID": uid}
            )
            run = self._offload.run if is_large(answer) else at_once
            return await run(partial(_read, answer, version, uid, webhook, trees, api_version))
        except WebhookError as error:
            raise _Failure("call", f"{webhook} failed: {error}") from None

    async def _call(self, body: bytes, described: Mapping[str, str | int]) -> bytes:
        config, span = WebhookConfig.of(self._review.config), current_span()
        if span is None:
            return await self._post(config, body, _TIMEOUT)
        described = {"custom-resource-definition": self._review.definition, **described}
        with span.child("Call conversion webhook", described) as call:
            answer = await self._post(config, body, _TIMEOUT)
            call.event("Request completed")
        return answer


class _Failure(Exception):
    """A failed conversion; `type` is its label in metrics."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message


def _batches(objects: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield batches of objects for one request each."""
    batch: list[tuple[int, bytes]] = []
    size = values = 0
    for index, data in objects:
        more = data.count(b",") + data.count(b"{") + data.count(b"[")
        full = len(batch) == _MOST_OBJECTS or size + len(data) > _MOST_BYTES or values + more > _MOST_VALUES
        if batch and full:
            yield batch
            batch, size, values = [], 0, 0
        batch.append((index, data))
        size, values = size + len(data), values + more
    if batch:
        yield batch


def _read(answer: bytes, version: str, uid: str, webhook: str, trees: Sequence[Tree], api_version: str) -> list[Tree]:
    """Return the converted objects of a review. Raises `_Failure`, and `WebhookError` for an invalid review."""
    others = [other for other in _VERSIONS if other != version]
    converted = _objects_of(decode_review(answer, _GROUP, (version, *others), _REVIEW), version, uid, webhook)
    if len(converted) != len(trees):
        raise _Failure("partial_response", f"{webhook} returned {len(converted)} objects, expected {len(trees)}")
    found = []
    for index, (tree, sent) in enumerate(zip(trees, converted, strict=True)):
        try:
            found.append(_held(tree, sent, api_version, index, alone=len(trees) == 1))
        except _Unfit as unfit:
            raise _Failure("invalid_converted_object", f"{webhook} returned {unfit}") from None
        except _Undecodable as problem:
            at = f"{webhook} returned invalid converted object at index {index}: " if len(trees) > 1 else ""
            raise _Failure("invalid_converted_object", f"{at}{problem}") from None
    return found


def _objects_of(review: Tree, version: str, uid: str, webhook: str) -> list[Any]:
    """Return the objects of a successful review. Raises `_Failure`. Reviews of v1beta1 need no kind and no uid."""

    def failed(why: str) -> _Failure:
        return _Failure("malformed_response", f"{webhook} failed: {why}")

    review_type, response = type_of_review(review), review.get("response")
    if version == "v1" and review_type != f"{_GROUP}/{version}, Kind={_REVIEW}":
        raise failed(f"expected webhook response of {_GROUP}/{version}, Kind={_REVIEW}, got {review_type}")
    if not isinstance(response, dict):
        raise failed("no response provided")
    if version == "v1" and response.get("uid", "") != uid:
        raise failed(f'expected response.uid="{uid}", got {_quoted(response.get("uid", ""))}')
    result = response.get("result")
    status = result.get("status", "") if isinstance(result, dict) else ""
    if status != "Success":
        message = result.get("message") if isinstance(result, dict) else ""
        raise failed(str(message) if message else f"response.result.status was '{status}', not 'Success'")
    objects = response.get("convertedObjects")
    return objects if isinstance(objects, list) else []


class _Unfit(Exception):
    """Raised if a converted object does not match the original."""


class _Undecodable(Exception):
    """Raised if a converted value is not an object."""


def _held(tree: Tree, sent: Any, api_version: str, index: int, *, alone: bool) -> Tree:
    """Return a converted object with the original's metadata, except for labels and annotations. Raises `_Unfit`."""
    at = f"at index {index}"
    of_type = f"invalid object {at}" if alone else f"invalid converted object {at}"
    of_object = "invalid object" if alone else f"invalid converted object {at}"
    of_metadata = "invalid metadata" if alone else f"invalid metadata in object {at}"
    _check_object(sent)
    if sent.get("apiVersion") != api_version:
        received = sent.get("apiVersion") or ""
        raise _Unfit(f"{of_type}: invalid groupVersion (expected {api_version}, received {received})")
    if sent["kind"] != tree["kind"]:
        raise _Unfit(f"{of_type}: invalid kind (expected {tree['kind']}, received {sent['kind']})")
    original, changed = tree["metadata"], sent.get("metadata")
    converted = changed if isinstance(changed, dict) else {}
    for word, name in (("name", "name"), ("namespace", "namespace"), ("UID", "uid")):
        if original.get(name, "") != converted.get(name, ""):
            raise _Unfit(
                f"{of_object}: must have the same {word}: {original.get(name, '')} != {converted.get(name, '')}"
            )
    try:
        return {**sent, "metadata": _restored(original, converted)}
    except _Unfit as unfit:
        raise _Unfit(f"{of_metadata}: {unfit}") from None


def _check_object(sent: Any) -> None:
    """Raises `_Undecodable`, with Go's error messages, if the value is not an object with a kind."""
    if sent is None:
        raise _Undecodable("unexpected end of JSON input")
    if not isinstance(sent, dict):
        raise _Undecodable(f"json: cannot unmarshal {json_type(sent)} into Go value of type map[string]interface {{}}")
    if not sent.get("kind") or str(sent.get("apiVersion") or "").count("/") > 1:
        raise _Undecodable(f"Object 'Kind' is missing in '{_cut(encode(sent).decode())}'")


def _restored(original: Tree, converted: Tree) -> Tree:
    found: Tree = deep_copy({name: value for name, value in original.items() if name not in ("labels", "annotations")})
    for name, rule, at in (
        ("labels", metadata.labels, _LABELS_AT),
        ("annotations", metadata.annotations, _ANNOTATIONS_AT),
    ):
        values = converted.get(name)
        if values is None:
            continue
        if not isinstance(values, dict):
            raise _Unfit(f"invalid metadata.{name} of type {_type_in_go(values)} in converted object")
        for key, value in values.items():
            if not isinstance(value, str):
                is_type = f"must be a string, but is {_type_in_go(value)} in converted object"
                raise _Unfit(f"metadata.{name}[{key}] {is_type}")
        if values != original.get(name, {}):
            errors = ErrorList()
            rule(values, at, errors)
            problems = [f"{cause.field}: {cause.message}" for cause in errors.causes]
            if problems:
                raise _Unfit(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
        found[name] = values
    return found


def _type_in_go(value: object) -> str:
    types = {bool: "bool", str: "string", int: "int64", float: "float64", list: "[]interface {}", type(None): "<nil>"}
    return types.get(type(value), "map[string]interface {}")


def _quoted(value: Any) -> str:
    return encode(value if isinstance(value, str) else "").decode()


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]}..."
