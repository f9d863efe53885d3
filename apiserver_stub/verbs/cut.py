"""From which state a list is read: the table of document 1 (Resource version semantics, list); pure."""

from dataclasses import dataclass
from enum import Enum

from apiserver_stub.verbs.query import Query, as_revision, flag, number
from controller_manager.api.errors import BadRequest


class Semantic(Enum):
    """What the caller is promised of the state it sees."""

    LATEST = "most recent, or any"
    NOT_OLDER = "not older than"
    EXACT = "exact"
    CONTINUE = "continuation"


@dataclass(frozen=True, slots=True)
class Cut:
    """The promise, the revision it speaks of (0: none), the size of a piece (0: all), the token to go on from."""

    semantic: Semantic
    revision: int = 0
    limit: int = 0
    token: str = ""


def cut(query: Query) -> Cut:
    """What the parameters of a list ask for; raises `BadRequest` for combinations that mean nothing."""
    if flag(query, "sendInitialEvents") is not None:
        raise BadRequest("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")
    version, match, token = (query.get(name, "") for name in ("resourceVersion", "resourceVersionMatch", "continue"))
    limit = max(number(query, "limit") or 0, 0)
    revision = as_revision(version, "resourceVersion") if version else 0
    if token:
        return _continued(revision, match, limit, token)
    match match:
        case "":
            return Cut(_unsaid(revision, limit), revision, limit)
        case "NotOlderThan":
            if not version:
                raise _forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
            return Cut(Semantic.NOT_OLDER if revision else Semantic.LATEST, revision, limit)
        case "Exact":
            if not revision:
                raise _forbidden('resourceVersionMatch "Exact" is forbidden unless a resourceVersion is provided')
            return Cut(Semantic.EXACT, revision, limit)
    raise BadRequest(f'resourceVersionMatch: Unsupported value: {match!r}: supported values: "Exact", "NotOlderThan"')


def _continued(revision: int, match: str, limit: int, token: str) -> Cut:
    if match:
        raise _forbidden("resourceVersionMatch is forbidden when continue is provided")
    if revision:
        raise BadRequest("specifying resource version is not allowed when using continue")
    return Cut(Semantic.CONTINUE, 0, limit, token)


def _unsaid(revision: int, limit: int) -> Semantic:
    if not revision:
        return Semantic.LATEST
    return Semantic.EXACT if limit else Semantic.NOT_OLDER


def _forbidden(why: str) -> BadRequest:
    return BadRequest(f"resourceVersionMatch: Forbidden: {why}")
