"""The responses of admission webhooks: decoding and validation (AdmissionReview of admission.k8s.io)."""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from apiserver_stub.encode.json import encode
from apiserver_stub.webhooks.client import WebhookError, decode_review, type_of_review
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.errors import ApiError, Status
from controller_manager.common.api.platform import GROUP_DOMAIN

GROUP = f"admission.{GROUP_DOMAIN}"
KIND = "AdmissionReview"
_VERSIONS = ("v1", "v1beta1")
_JSON_PATCH = "JSONPatch"
_LEAST_CODE = 400
_MOST_WARNINGS = 100
_LONGEST_WARNING = 4096  # characters
_CONTROL = re.compile("[\x00-\x1f\x7f]")  # not allowed in headers


class InvalidResponse(Exception):
    """Raised for a review that does not match the request; the message is the reason."""


class _Response(msgspec.Struct, rename="camel", frozen=True):
    """`response` of a review, in which null is absence."""

    uid: str | None = None
    allowed: bool | None = None
    status: Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    audit_annotations: Mapping[str, str] | None = None
    warnings: Sequence[str] | None = None


class _Review(msgspec.Struct, rename="camel", frozen=True):
    kind: str
    api_version: str
    response: _Response


_RESPONSE = Decoder(_Response)
_REVIEW = msgspec.json.Decoder(_Review)
_SHORT = 4096  # bytes of a response that needs no size checks


class WebhookReview(msgspec.Struct, frozen=True):
    """The result of a webhook: whether it allows the request, the status, the JSON of a patch (of a type that may be
    unknown), warnings and audit annotations.
    """

    allowed: bool
    status: Status | None = None
    patch: bytes = b""
    patch_type: str = ""
    annotations: Mapping[str, str] = {}
    warnings: Sequence[str] = ()


def read_verdict(answer: bytes, version: str, uid: str, *, mutating: bool) -> WebhookReview:
    """Return the result in the response to a review of a version. Raises `WebhookError` for an invalid review, and
    `InvalidResponse`.
    """
    got, response = _read(answer, version)
    try:
        patch = b64decode(response.patch, validate=True) if response.patch else b""
    except ValueError as error:
        raise _not_a_review(error) from None
    kind = response.patch_type
    if version == "v1":
        _check(got, response, uid, mutating=mutating)
    else:
        kind = _JSON_PATCH if patch else ""
    return WebhookReview(
        bool(response.allowed),
        response.status,
        patch if mutating else b"",
        kind or "",
        response.audit_annotations or {},
        [text[:_LONGEST_WARNING] for text in (response.warnings or ())[:_MOST_WARNINGS] if not _CONTROL.search(text)],
    )


def _read(answer: bytes, version: str) -> tuple[str, _Response]:
    """Return the type and the response of a review. Raises like `read_verdict`."""
    expected = f"{GROUP}/{version}"
    if len(answer) <= _SHORT:
        with suppress(msgspec.DecodeError, RecursionError):
            usual = _REVIEW.decode(answer)
            if usual.kind == KIND and usual.api_version == expected:
                return f"{expected}, Kind={KIND}", usual.response
    others = [other for other in _VERSIONS if other != version]
    if answer.strip() == b"null":
        answer = b"{}"  # like decoders in Go
    review = decode_review(answer, GROUP, (version, *others), KIND)
    response = review.get("response")
    if response is None:
        raise InvalidResponse("webhook response was absent")
    try:
        return type_of_review(review), _RESPONSE.decode(encode(response))
    except (msgspec.ValidationError, ValueError) as error:
        raise _not_a_review(error) from None


def _not_a_review(error: Exception) -> WebhookError:
    return WebhookError(f"the response is not a valid {KIND}: response: {error}")


def _check(got: str, response: _Response, uid: str, *, mutating: bool) -> None:
    """Raises `InvalidResponse` for what version v1 does not allow."""
    if response.uid != uid:
        raise InvalidResponse(f'expected response.uid="{uid}", got {_quoted(response.uid or "")}')
    expected = f"{GROUP}/v1, Kind={KIND}"
    if got != expected:
        raise InvalidResponse(f"expected webhook response of {expected}, got {got}")
    patch, kind = response.patch, response.patch_type
    if not mutating:
        if patch:
            raise InvalidResponse("validating webhook may not return response.patch")
        if kind is not None:
            raise InvalidResponse("validating webhook may not return response.patchType")
    elif patch and kind is None:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    elif not patch and kind is not None:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    elif kind == "":
        raise InvalidResponse('webhook returned invalid response.patchType of ""')


class Denied(ApiError):
    """Raised for a request that a webhook denies, with code, reason and details of its status."""

    def __init__(self, webhook: str, status: Status | None) -> None:
        status = status or Status()
        why = status.message or status.reason
        denied = f'admission webhook "{webhook}" denied the request'
        super().__init__(f"{denied}: {why}" if why else f"{denied} without explanation", status.details)
        self.code = max(status.code, _LEAST_CODE)
        self.reason = status.reason


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
