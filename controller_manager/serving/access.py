"""Access to a process's own pages: some paths are for all, the rest for users who are allowed."""

from typing import Protocol

from controller_manager.api.errors import BadRequest, InternalError, ServiceUnavailable
from controller_manager.api.wire import Request
from controller_manager.base.clock import monotonic
from controller_manager.serving.authentication import RequestAuthenticator, User, is_text, unauthorized
from controller_manager.serving.authorization import (
    AlwaysAllowedPaths,
    Attributes,
    Authorization,
    Authorizer,
    Decision,
    refusal,
)
from controller_manager.serving.impersonation import refuse_impersonation


class Observer(Protocol):
    """Is told how each request was judged, and how long that took in seconds."""

    def authenticated(self, user: User | None, seconds: float) -> None:
        """A user was recognized; None: nobody, for the credentials were not accepted."""

    def authorized(self, decision: Decision | None, seconds: float) -> None:
        """Something was decided; None: it could not be."""


class Access:
    """The rules of one process.

    An always allowed path is answered without a look at credentials, so that it is answered while the API server is
    away.
    """

    def __init__(
        self,
        always_allowed: AlwaysAllowedPaths,
        authenticator: RequestAuthenticator,
        authorizer: Authorizer,
        observer: Observer,
    ) -> None:
        self._always_allowed = always_allowed
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._observer = observer

    async def check(self, request: Request) -> None:
        """Return if the request may be answered.

        Raises Unauthorized for credentials that are not accepted, Forbidden, BadRequest or Forbidden for a request in
        another's name, and InternalError when the API server cannot be asked what a user may do.
        """
        if request.path in self._always_allowed:
            return
        if not is_text(request.path):
            raise BadRequest("the path is not UTF-8")
        user = await self._authenticate(request)
        refuse_impersonation(request.headers)
        attributes = Attributes(user, request.method.lower(), request.path)
        decision, reason = await self._authorize(attributes)
        if decision is not Decision.ALLOW:
            raise refusal(attributes, reason)

    async def _authenticate(self, request: Request) -> User:
        began, user = monotonic(), None
        try:
            user = await self._authenticator.authenticate(request)
        except ServiceUnavailable:
            raise unauthorized() from None
        finally:
            self._observer.authenticated(user, monotonic() - began)
        return user

    async def _authorize(self, attributes: Attributes) -> Authorization:
        began, decision = monotonic(), None
        try:
            authorization = await self._authorizer.authorize(attributes)
            decision = authorization.decision
        except ServiceUnavailable:
            raise InternalError("it cannot be found out what the caller may see") from None
        finally:
            self._observer.authorized(decision, monotonic() - began)
        return authorization
