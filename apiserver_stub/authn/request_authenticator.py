"""The chain of authenticators: the first that recognizes the caller decides who it is."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from apiserver_stub.call import ANONYMOUS, UNAUTHENTICATED, User
from apiserver_stub.parse import PUBLIC
from controller_manager.api.errors import Unauthorized
from controller_manager.api.wire import Request
from controller_manager.serving.impersonation import refuse_impersonation

AUTHENTICATED = "system:authenticated"
_NOBODY = User(ANONYMOUS, groups=(UNAUTHENTICATED,))

Authenticator = Callable[[Request], User | None]


class RequestAuthenticator:
    """Names the caller of a request, or refuses it."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def __call__(self, request: Request) -> User:
        """The caller, a member of `system:authenticated`, or anybody who asks for what is public and brings no token.

        Raises `Unauthorized`, and `Forbidden` or `BadRequest` for a caller who would be another.
        """
        user = self._recognized(request)
        refuse_impersonation(request.headers)
        return user

    def _recognized(self, request: Request) -> User:
        for authenticate in self._authenticators:
            user = authenticate(request)
            if user is not None:
                return user
        if request.path in PUBLIC and not bearer_token(request):
            return _NOBODY
        raise Unauthorized("Unauthorized")


def bearer_token(request: Request) -> str:
    """The token of the `Authorization` header (RFC 6750, section 2.1), what follows it left out; empty if there is
    none.
    """
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    return rest.strip().partition(" ")[0] if scheme.lower() == "bearer" else ""


def authenticated(user: User) -> User:
    """`user` as a member of the group every authenticated caller belongs to."""
    return user if AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, AUTHENTICATED))
