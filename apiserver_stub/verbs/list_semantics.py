"""From which state a list is read (API concepts, Resource version semantics), and where it goes on; pure."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import orjson

from apiserver_stub.verbs.query import Query, as_revision, check_list, number
from controller_manager.api.errors import BadRequest

_VERSION = 2


class VersionMatch(Enum):
    """The promise that a caller gets of the state it sees."""

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
    """Return the semantics that the parameters of a list ask for. Raises `BadRequest` or `Invalid` for nonsense."""
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


class ContinueToken(NamedTuple):
    """The place at which a list that is read in pieces goes on: a revision (0: the newest) and a key; `began` is
    when the first piece was read, in seconds since the epoch.
    """

    revision: int
    after: str
    began: int = 0


def write_token(token: ContinueToken) -> str:
    """Return the token as opaque text that fits a URL."""
    return urlsafe_b64encode(orjson.dumps([_VERSION, *token])).decode().rstrip("=")


def read_token(text: str, prefix: str) -> ContinueToken:
    """Return the token a caller brought back for keys that begin with `prefix`. Raises `BadRequest` for other text."""
    try:
        found = orjson.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (Error, ValueError):
        raise refused_token() from None
    match found:
        case [2, int(revision), str(after), int(began)] if revision >= 0 and after.startswith(prefix):
            return ContinueToken(revision, after, began)
    raise refused_token()


def refused_token() -> BadRequest:
    """Return the answer to a token that this server cannot have given."""
    return BadRequest("continue: Invalid value: the token is not one this server has given for this list")
