"""Headers in which a caller asks to act as somebody else: where nobody may, they are refused and never ignored."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from controller_manager.api.errors import BadRequest, forbidden
from controller_manager.api.wire import Request
from controller_manager.serving.authentication import User

_PREFIX, _EXTRA = "impersonate-", "impersonate-extra-"


class Impersonator(Protocol):
    """Lets users act as others."""

    async def impersonate(self, request: Request, user: User) -> User | None:
        """Return in whose name `user` asks; None if in its own. Raises `Forbidden` or `BadRequest`."""


def refuse_impersonation(headers: Mapping[str, str]) -> None:
    """Raise for a request in another's name: what is asked for a weaker user must not be done for a stronger one.

    | headers, names in lower case                          | as upstream                                   |
    |-------------------------------------------------------|-----------------------------------------------|
    | impersonate-user with a name, whatever else           | Forbidden, as for callers who may not         |
    | -uid with a value, -group or any -extra-*, and no user| BadRequest: of whom?                          |
    | an empty impersonate-user or -uid alone, and others   | they change nobody, and are but headers       |
    """
    asked = [name for name in headers if name.startswith(_PREFIX)]
    if not asked:
        return
    if user := headers.get("impersonate-user"):
        raise forbidden("", "users", user, "this server serves no impersonation")
    if _says_more(asked, headers):
        raise BadRequest("the request asks for impersonation without naming a user in Impersonate-User")


def _says_more(asked: Iterable[str], headers: Mapping[str, str]) -> bool:
    return any(
        name == "impersonate-group" or name.startswith(_EXTRA) or (name == "impersonate-uid" and headers[name])
        for name in asked
    )
