"""Callers known by a bearer token of the file given with `--token-auth-file`."""

import csv
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from apiserver_stub.authn.chain import authenticated
from apiserver_stub.call import User
from controller_manager.api.wire import Request


class StaticTokens:
    """Known tokens, kept and looked up as SHA-256 digests: the time of a comparison tells nothing of a token."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = {_digest(token): authenticated(user) for token, user in users.items()}

    def __call__(self, request: Request) -> User | None:
        """The user whose token the request carries."""
        token = bearer_token(request)
        return self.find(token) if token else None

    def find(self, token: str) -> User | None:
        """The user of a token."""
        return self._users.get(_digest(token))


def bearer_token(request: Request) -> str:
    """The token of the `Authorization` header (RFC 6750, section 2.1); empty if there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def read_token_file(path: Path) -> StaticTokens:
    """Read lines of `token,user,uid[,"group1,group2"]`. Raises `ValueError` naming the line that is wrong."""
    with path.open(encoding="utf-8", newline="") as lines:
        return StaticTokens(parse_tokens(lines, str(path)))


def parse_tokens(lines: Iterable[str], source: str) -> dict[str, User]:
    """The users by token; `source` names the file in errors."""
    users: dict[str, User] = {}
    rows = csv.reader(lines)
    for row in rows:
        fields = [field.strip() for field in row]
        if not any(fields):
            continue
        where = f"{source}, line {rows.line_num}"
        if len(fields) < 3 or not fields[0] or not fields[1]:
            raise ValueError(f"{where}: expected token,user,uid and optionally quoted groups")
        if fields[0] in users:
            raise ValueError(f"{where}: the token was given before")
        groups = tuple(group.strip() for group in fields[3].split(",") if group.strip()) if len(fields) > 3 else ()
        users[fields[0]] = User(fields[1], fields[2], groups)
    return users


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
