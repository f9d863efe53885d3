"""The chain of authenticators: the first that recognizes the caller decides who it is."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from apiserver_stub.call import User
from controller_manager.api.errors import Unauthorized, forbidden
from controller_manager.api.wire import Request

AUTHENTICATED = "system:authenticated"
# Clients say whom they would be in these, and more of it in headers that mean nothing without one of them.
_IMPERSONATING = frozenset({"impersonate-user", "impersonate-group", "impersonate-uid"})

Authenticator = Callable[[Request], User | None]


class Who:
    """Names the caller of a request, or refuses it."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def __call__(self, request: Request) -> User:
        """The caller, a member of `system:authenticated`. Raises `Unauthorized`, and `Forbidden` for a caller who
        would be another: what is asked in a weaker user's name must not be done in a stronger one's.
        """
        for authenticate in self._authenticators:
            user = authenticate(request)
            if user is None:
                continue
            if not _IMPERSONATING.isdisjoint(request.headers):
                name = request.headers.get("impersonate-user", "")
                raise forbidden("", "users", name, "this server serves no impersonation")
            return user
        raise Unauthorized("Unauthorized")


def authenticated(user: User) -> User:
    """`user` as a member of the group every authenticated caller belongs to."""
    return user if AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, AUTHENTICATED))
