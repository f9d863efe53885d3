"""Reasons for failed calls: gRPC status codes, HTTP/2 stream errors and responses of proxies."""

from collections.abc import Mapping
from urllib.parse import unquote

from controller_manager.common.transport.http2 import ErrorCode, Http2Error

_CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
# The gRPC code for a stream error or a proxy's response without a gRPC status.
_OF_RESETS: Mapping[int | None, str] = {
    None: "UNAVAILABLE",
    ErrorCode.REFUSED_STREAM: "UNAVAILABLE",
    ErrorCode.CANCEL: "CANCELLED",
    ErrorCode.ENHANCE_YOUR_CALM: "RESOURCE_EXHAUSTED",
    ErrorCode.INADEQUATE_SECURITY: "PERMISSION_DENIED",
}
_OF_HTTP = {
    "400": "INTERNAL",
    "401": "UNAUTHENTICATED",
    "403": "PERMISSION_DENIED",
    "404": "UNIMPLEMENTED",
    **dict.fromkeys(("429", "502", "503", "504"), "UNAVAILABLE"),
}


class GrpcError(Exception):
    """A failed call; `code` is the canonical name of its status, such as `UNAVAILABLE` or `DEADLINE_EXCEEDED`. If
    `unsent`, the server has certainly not processed the call.
    """

    def __init__(self, code: str, message: str, *, unsent: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.unsent = unsent


def failure_of(headers: Mapping[str, str], error: Http2Error | None) -> GrpcError | None:
    """Return the error of a call that ended with these headers or this error; None if it succeeded. The status sent by
    the server takes precedence.
    """
    status = headers.get("grpc-status")
    if status is not None:
        code = _CODES[int(status)] if status.isdecimal() and int(status) < len(_CODES) else "UNKNOWN"
        message = unquote(headers.get("grpc-message", "")) or "the server gave no reason"
        return None if code == "OK" else GrpcError(code, message)
    if error is not None:
        return GrpcError(_OF_RESETS.get(error.code, "INTERNAL"), str(error), unsent=error.unsent)
    http = headers.get(":status", "")
    return GrpcError(_OF_HTTP.get(http, "UNKNOWN"), f"the server speaks no gRPC: it answered {http or 'nothing'}")
