"""API errors: one class per reason; the server raises them and the client decodes them from a `Status`."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model


class Cause(Model):
    """A cause of an error (`status.details.causes[]`); `reason` is e.g. `FieldValueRequired`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Model):
    """`status.details`; `kind` is the plural resource name, or the kind for `Invalid`, as in Kubernetes."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class Status(Model):
    """The body of an error, and of a successful delete."""

    kind: str = "Status"
    api_version: str = "v1"
    metadata: Mapping[str, str] = {}
    status: str = "Failure"
    message: str = ""
    reason: str = ""
    details: Details | None = None
    code: int = 0

    def encode(self) -> bytes:
        """Return the Status as JSON, with its constant fields."""
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, **msgspec.to_builtins(self)}
        body["status"] = self.status
        return msgspec.json.encode(body)


class ApiError(Exception):
    """An error response of the API. `code` is the HTTP status, `reason` the machine-readable reason; `warnings` are
    sent in headers with the error.
    """

    code: int = 500
    reason: str = "InternalError"

    def __init__(self, message: str, details: Details | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.warnings: tuple[str, ...] = ()

    def status(self) -> Status:
        """Return the error as response body."""
        return Status(message=self.message, reason=self.reason, details=self.details, code=self.code)


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class InvalidName(BadRequest):
    """A name that no object can have. The request is not sent, and retries are useless."""


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class Conflict(ApiError):
    code, reason = 409, "Conflict"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Expired(ApiError):
    """The requested history is no longer available; with a `continue_token` a list can continue from the newest
    state.
    """

    code, reason = 410, "Expired"

    def __init__(self, message: str, details: Details | None = None, continue_token: str = "") -> None:
        super().__init__(message, details)
        self.continue_token = continue_token

    def status(self) -> Status:
        """Return the error as response body."""
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        return replace(super().status(), metadata=metadata)


class Gone(ApiError):
    code, reason = 410, "Gone"


class RequestEntityTooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class InternalError(ApiError):
    code, reason = 500, "InternalError"


class UnknownError(ApiError):
    """An error without a specific reason."""

    code, reason = 500, ""


class StorageReadError(ApiError):
    code, reason = 500, "StorageReadError"


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"


_CLASSES: tuple[type[ApiError], ...] = (
    BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, NotAcceptable, Conflict, AlreadyExists,
    Expired, Gone, RequestEntityTooLarge, UnsupportedMediaType, Invalid, TooManyRequests, InternalError,
    StorageReadError, ServiceUnavailable, Timeout,
)  # fmt: skip
_STATUS = Decoder(Status)
_MOST_CAUSES = 200  # an object of the maximum size could have a few hundred thousand errors
_BY_REASON = {c.reason: c for c in _CLASSES}
_BY_CODE = {c.code: c for c in reversed(_CLASSES)}


def not_found(group: str, plural: str, name: str) -> NotFound:
    """Return the error for an object that does not exist."""
    return NotFound(f'{_qualified(group, plural)} "{name}" not found', Details(name=name, group=group, kind=plural))


def already_exists(group: str, plural: str, name: str) -> AlreadyExists:
    """Return the error for creating an object whose name exists."""
    details = Details(name=name, group=group, kind=plural)
    return AlreadyExists(f'{_qualified(group, plural)} "{name}" already exists', details)


def conflict(group: str, plural: str, name: str, why: str) -> Conflict:
    """Return the error for a request that expected another state of the object."""
    message = f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'
    return Conflict(message, Details(name=name, group=group, kind=plural))


def forbidden(group: str, plural: str, name: str, why: str, *causes: Cause) -> Forbidden:
    """Return the error for a request that is not allowed; `causes` are machine-readable."""
    subject = f'{_qualified(group, plural)} "{name}"' if name else _qualified(group, plural)
    details = Details(name=name, group=group, kind=plural, causes=causes)
    return Forbidden(f"{subject} is forbidden: {why}", details)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> Invalid:
    """Return the error for an invalid object with its causes, up to a limit."""
    reported = causes[:_MOST_CAUSES]
    problems = [f"{c.field}: {c.message}" if c.field else c.message for c in reported]
    if len(causes) > len(reported):
        problems.append("and more")
    listed = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
    qualified = f"{kind}.{group}" if group else kind
    details = Details(name=name, group=group, kind=kind, causes=tuple(reported))
    return Invalid(f'{qualified} "{name}" is invalid: {listed}', details)


def internal_error(why: str) -> InternalError:
    """Return the error for an internal failure."""
    return InternalError(f"Internal error occurred: {why}", Details(causes=(Cause(message=why),)))


def from_response(code: int, body: bytes) -> ApiError:
    """Return the error in a response; a body that is not a `Status` becomes one with the body's first line."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        status = Status()
    if status.kind != "Status" or not status.message:
        text = body.decode("utf-8", "replace").partition("\n")[0][:500] or f"HTTP status {code}"
        return _unlisted(code, "")(text)
    found = _BY_REASON.get(status.reason)
    if found is None or found.code != code:
        found = _unlisted(code, status.reason)
    return found(status.message, status.details)


_DEFAULT_MESSAGES: Mapping[int, str] = MappingProxyType({
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
})  # fmt: skip
_KEEP_BODY = (403, 406, 415)


def what_clients_make_of(code: int, text: str) -> str:
    """Return the message that Go clients show for an error body `text` that is not a `Status`."""
    if code in _KEEP_BODY:
        return text
    if code in _DEFAULT_MESSAGES:
        return _DEFAULT_MESSAGES[code]
    if code >= 500:
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return f"the server responded with the status code {code} but did not return more information"


def _unlisted(code: int, reason: str) -> type[ApiError]:
    known = _BY_CODE.get(code)
    if known is not None and (not reason or known.reason == reason):
        return known
    base = known or ApiError
    return type(base.__name__, (base,), {"code": code, "reason": reason or base.reason})


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural
