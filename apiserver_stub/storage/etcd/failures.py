"""What etcd refuses and why, as far as it says: what may be tried again, and what clients are told."""

from controller_manager.common.api import errors
from controller_manager.common.transport.grpc import GrpcError

# What was not begun, by how etcd's words end: neither a read nor a write has happened.
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
    """Tell whether what was asked has certainly not happened."""
    return was_not_begun(failure) or failure.code not in _UNKNOWN


def was_not_begun(failure: GrpcError) -> bool:
    """Tell whether a write may be tried again: there was no connection, or etcd says that it had no leader for it."""
    return failure.unsent or failure.message.endswith(_NOT_BEGUN)


def is_passing(failure: GrpcError) -> bool:
    """Tell whether a read may be tried again."""
    return was_not_begun(failure) or failure.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED") or is_throttled(failure)


def is_throttled(failure: GrpcError) -> bool:
    """Tell whether etcd has too much to do."""
    return failure.code == "RESOURCE_EXHAUSTED" and failure.message.endswith("too many requests")


def ends_connection(failure: GrpcError) -> bool:
    """Tell whether another member should be asked instead."""
    return failure.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


def label(failure: GrpcError) -> str:
    """Return what metrics of retries call it."""
    for words, name in _LABELS.items():
        if failure.message.endswith(words):
            return name
    return "Timeout" if "request timed out" in failure.message else "Unavailable"


def refusal(failure: GrpcError) -> errors.ApiError:
    """Return what a client is told of a read or a write that did not happen."""
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
    """Return what a client is told of a write of which nobody knows whether it happened."""
    return errors.Timeout(f"it is unknown whether the write was made: {failure.message}")
