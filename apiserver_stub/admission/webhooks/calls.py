"""Calls of admission webhooks: requests, failures, metrics and audit annotations."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import msgspec

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.metrics import CALLING, INTERNAL, NO_ERROR, WebhookMetrics
from apiserver_stub.admission.review import admission_request, converted
from apiserver_stub.admission.webhooks.configurations import Webhook
from apiserver_stub.admission.webhooks.response import (
    GROUP,
    KIND,
    Denied,
    InvalidResponse,
    WebhookReview,
    read_verdict,
)
from apiserver_stub.common.offload import Offload, is_large
from apiserver_stub.common.spans import Span, current_span
from apiserver_stub.encode.json import encode
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.webhooks.client import WebhookClient, WebhookError
from controller_manager.common.api.errors import ApiError, BadRequest, internal_error
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.log import Logger
from controller_manager.common.base.random import random_source

T = TypeVar("T")
Phase = Literal["admit", "validating"]
"""The webhook type in metrics."""

_UNAVAILABLE = 503
_NO_SPAN: AbstractContextManager[None] = nullcontext()
_NULL = msgspec.Raw(b"null")
# Time fields that Go always serializes, by version and kind.
_TIMES: Mapping[tuple[str, str], Mapping[str, None]] = MappingProxyType({
    ("v1", "Event"): dict.fromkeys(("firstTimestamp", "lastTimestamp", "eventTime")),
    (f"events.{GROUP_DOMAIN}/v1", "Event"): dict.fromkeys(
        ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp")
    ),
})  # fmt: skip


class CallFailed(Exception):
    """Raised if a webhook call failed or its response is invalid; `code` is the status code of the failure."""

    def __init__(self, message: str, code: int = _UNAVAILABLE) -> None:
        super().__init__(message)
        self.code = code


class Question:
    """A request as webhooks see it that name a version of its resource (`info`)."""

    def __init__(self, attributes: Attributes, info: ResourceInfo, new: Tree | None, old: Tree | None) -> None:
        self.attributes = attributes
        self.info = info
        self.object = new
        self.old_object = old
        self.request = admission_request(attributes, info)
        self._objects: dict[str, msgspec.Raw] = {}

    @classmethod
    async def of(cls, attributes: Attributes, info: ResourceInfo) -> "Question":
        """Return the question, with objects in that version. Raises what their conversion does."""

        new, old = attributes.object, attributes.old_object
        if info is not attributes.kind:
            part = attributes.subresource
            new = None if new is None else await converted(new, attributes.kind, info, part)
            old = None if old is None else await converted(old, attributes.kind, info, part)
        return cls(attributes, info, new, old)

    def review(self, version: str, uid: str) -> bytes:
        """Return the AdmissionReview of a version."""
        if not self._objects:
            self._objects = {"object": _encoded(self.object), "oldObject": _encoded(self.old_object)}
        request = {"uid": uid, **self.request, **self._objects}
        return encode({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": request})


class Calls:
    """Calls the webhooks of one phase."""

    def __init__(
        self, phase: Phase, client: WebhookClient, offload: Offload, metrics: WebhookMetrics, log: Logger
    ) -> None:
        self._phase: Phase = phase
        self._client = client
        self._offload = offload
        self._metrics = metrics
        self._log = log

    async def ask(self, webhook: Webhook, question: Question) -> WebhookReview:
        """Return the verdict of a webhook that allows the request; warnings and annotations are noted. Raises `Denied`,
        `CallFailed`, and `BadRequest` for a dry run that the webhook must not see.
        """
        attributes = question.attributes
        if attributes.dry_run and not webhook.dry_run:
            raise BadRequest(f'admission webhook "{webhook.name}" does not support dry run')
        uid, version = random_source().uid(), webhook.review_version
        if not version:
            known = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise CallFailed(f"could not create admission objects: {known}", BadRequest.code)
        try:
            with self._span(webhook, question, uid) as span:
                answer = await self._client.post(webhook.config(), question.review(version, uid), webhook.timeout)
                if span is not None:
                    span.event("Request completed")
            read = partial(read_verdict, answer, version, uid, mutating=self._phase == "admit")
            verdict = await self._offload.run(read) if is_large(answer) else read()
        except WebhookError as error:
            raise CallFailed(f"failed to call webhook: {error}", error.code) from error
        except InvalidResponse as error:
            raise CallFailed(f"received invalid webhook response: {error}") from None
        for key, value in verdict.annotations.items():
            attributes.notes.annotate(f"{webhook.name}/{key}", value)
        for text in verdict.warnings:
            attributes.notes.warn(text)
        if not verdict.allowed:
            raise Denied(webhook.name, verdict.status)
        return verdict

    async def perform(
        self, webhook: Webhook, attributes: Attributes, work: Awaitable[T], failed_open: Callable[[], T]
    ) -> T:
        """Return the result of `work`, or of `failed_open` if the call failed and the failure policy is Ignore. Raises
        `ApiError`.
        """
        began, outcome = monotonic(), (200, "")
        try:
            return await work
        except Denied as denied:
            outcome = denied.code, NO_ERROR
            raise
        except CallFailed as failure:
            outcome = failure.code, "" if webhook.ignores else CALLING
            return self._failed(webhook, failure, failed_open)
        except ApiError:
            outcome = 0, INTERNAL
            raise
        except BaseException:
            outcome = 0, ""  # the request was canceled
            raise
        finally:
            if outcome[0] or outcome[1]:
                name, operation, seconds = webhook.name, attributes.operation.upper(), monotonic() - began
                self._metrics.asked(name, self._phase, operation, *outcome, seconds)

    def _failed(self, webhook: Webhook, failure: CallFailed, failed_open: Callable[[], T]) -> T:
        opens = "failing open" if webhook.ignores else "failing closed"
        self._log.warning(f"Failed calling webhook, {opens}", webhook=webhook.name, why=str(failure))
        if not webhook.ignores:
            raise internal_error(f'failed calling webhook "{webhook.name}": {failure}') from failure
        self._metrics.failed_open(webhook.name, self._phase)
        return failed_open()

    def _span(self, webhook: Webhook, question: Question, uid: str) -> AbstractContextManager[Span | None]:
        span = current_span()
        if span is None:
            return _NO_SPAN
        of, info = question.attributes, question.attributes.kind
        described: dict[str, Any] = {
            "configuration": webhook.configuration,
            "webhook": webhook.name,
            "resource": f"{info.group}/{info.version}, Resource={info.plural}",
            "subresource": of.subresource,
            "operation": of.operation.upper(),
            "UID": uid,
        }
        return span.child(f"Call {'mutating' if self._phase == 'admit' else 'validating'} webhook", described)


def _encoded(tree: Tree | None) -> msgspec.Raw:
    """Return the JSON of an object, its type first."""
    if tree is None:
        return _NULL
    kind, version = tree.get("kind", ""), tree.get("apiVersion", "")
    return msgspec.Raw(encode({"kind": kind, "apiVersion": version, **_TIMES.get((version, kind), {}), **tree}))
