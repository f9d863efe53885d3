"""Classification of etcd errors: which requests may be retried, and which error the client gets."""

from controller_manager.common.api import errors
from controller_manager.common.transport.grpc import GrpcError

# Endings of etcd's messages for requests that were not started: neither a read nor a write has happened.
_NOT_BEGUN = ("leader changed", "no leader", "raft proposal dropped")
_UNKNOWN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL", "ABORTED"})
_LABELS = {
    "leader changed": "LeaderChanged",
    "no leader": "NoLeader",
    "raft proposal dropped": "ProposalDropped",
    "server stopped": "Stopped",
}
COMPACTED = "required revision has been compacted"
NO_LEASE = "requested lease not found"
NO_SPACE = "database space exceeded"


def is_known(failure: GrpcError) -> bool:
    """Return whether the request certainly had no effect."""
    return was_not_begun(failure) or failure.code not in _UNKNOWN


def was_not_begun(failure: GrpcError) -> bool:
    """Return whether a write may be retried: there was no connection, or etcd had no leader for it."""
    return failure.unsent or failure.message.endswith(_NOT_BEGUN)


def is_passing(failure: GrpcError) -> bool:
    """Return whether a read may be retried."""
    return was_not_begun(failure) or failure.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED") or is_throttled(failure)


def is_throttled(failure: GrpcError) -> bool:
    """Return whether etcd is overloaded."""
    return failure.code == "RESOURCE_EXHAUSTED" and failure.message.endswith("too many requests")


def ends_connection(failure: GrpcError) -> bool:
    """Return whether to switch to another member."""
    return failure.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


def label(failure: GrpcError) -> str:
    """Return the label of the error in retry metrics."""
    for words, name in _LABELS.items():
        if failure.message.endswith(words):
            return name
    return "Timeout" if "request timed out" in failure.message else "Unavailable"


def refusal(failure: GrpcError) -> errors.ApiError:
    """Return the client's error for a read or write that did not happen."""
    if is_throttled(failure):
        return errors.TooManyRequests(failure.message, errors.Details(retry_after_seconds=1))
    if failure.message.endswith("request is too large") or "message larger than max" in failure.message:
        return errors.RequestEntityTooLarge(failure.message)
    if failure.code in ("PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "DATA_LOSS", "UNIMPLEMENTED"):
        return errors.InternalError(failure.message)
    if failure.code == "DEADLINE_EXCEEDED":
        return errors.Timeout("etcd did not answer in time")
    return errors.ServiceUnavailable(f"etcd cannot be used: {failure.message}")


def unknown(failure: GrpcError) -> errors.Timeout:
    """Return the client's error for a write with an unknown outcome."""
    return errors.Timeout(f"unknown whether the write was applied: {failure.message}")
