"""The opaque token of a list read in pieces: revision and time of the first piece, and the last key; pure."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import NamedTuple

import orjson

from controller_manager.api.errors import BadRequest

_VERSION = 2


class ContinueToken(NamedTuple):
    """Where to go on: at which revision, 0 for the newest, and after which key; `began` is when the first piece was
    read, in seconds since the epoch.
    """

    revision: int
    after: str
    began: int = 0


def write(token: ContinueToken) -> str:
    """The token as text that fits a URL."""
    return urlsafe_b64encode(orjson.dumps([_VERSION, *token])).decode().rstrip("=")


def read(text: str, prefix: str) -> ContinueToken:
    """The token a caller brought back for keys that begin with `prefix`. Raises `BadRequest` for any other text."""
    try:
        found = orjson.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (Error, ValueError):
        raise refused() from None
    match found:
        case [2, int(revision), str(after), int(began)] if revision >= 0 and after.startswith(prefix):
            return ContinueToken(revision, after, began)
    raise refused()


def refused() -> BadRequest:
    """The answer to a token that this server cannot have given."""
    return BadRequest("continue: Invalid value: the token is not one this server has given for this list")
