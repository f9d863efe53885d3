"""From which state a list is read: the table of the API concepts (Resource version semantics, list); pure."""

from dataclasses import dataclass
from enum import Enum

from apiserver_stub.verbs.query import Query, as_revision, check_list, number
from controller_manager.api.errors import BadRequest


class VersionMatch(Enum):
    """What the caller is promised of the state it sees."""

    LATEST = "most recent"
    ANY = "any"
    NOT_OLDER = "not older than"
    EXACT = "exact"
    CONTINUE = "continuation"


@dataclass(frozen=True, slots=True)
class ListSemantics:
    """The promise, the revision it speaks of (0: none), the size of a piece (0: all), the token to go on from."""

    semantic: VersionMatch
    revision: int = 0
    limit: int = 0
    token: str = ""


def list_semantics(query: Query) -> ListSemantics:
    """What the parameters of a list ask for; raises `BadRequest` or `Invalid` for what means nothing."""
    number(query, "timeoutSeconds")  # how long a watch lasts; others must be able to say it
    check_list(query)
    version, match, token = (query.get(name, "") for name in ("resourceVersion", "resourceVersionMatch", "continue"))
    limit = max(number(query, "limit") or 0, 0)
    revision = as_revision(version, "resourceVersion") if version else 0
    if token:
        if revision:
            raise BadRequest("specifying resource version is not allowed when using continue")
        return ListSemantics(VersionMatch.CONTINUE, 0, limit, token)
    if match == "Exact":
        return ListSemantics(VersionMatch.EXACT, revision, limit)
    if match:
        return ListSemantics(VersionMatch.NOT_OLDER if revision else _unversioned(version), revision, limit)
    if not revision:
        return ListSemantics(_unversioned(version), 0, limit)
    return ListSemantics(VersionMatch.EXACT if limit else VersionMatch.NOT_OLDER, revision, limit)


def _unversioned(version: str) -> VersionMatch:
    return VersionMatch.ANY if version else VersionMatch.LATEST
