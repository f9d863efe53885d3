"""Token reviews and subject access reviews for callers of this process, with caches."""

import asyncio
import re
from typing import TypeVar

import msgspec

from controller_manager.common.api.errors import ApiError, InternalError, ServiceUnavailable, Timeout, TooManyRequests
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.reviews import (
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    NonResourceAttributes,
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
    TokenReview,
    TokenReviewSpec,
    TokenReviewStatus,
)
from controller_manager.common.base.log import Logger
from controller_manager.common.base.random import random_source
from controller_manager.common.serving.access_metrics import TokenCacheMetrics
from controller_manager.common.serving.answers import Answers, keyed_digest
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorization, AuthorizerAttributes, Decision, Rules
from controller_manager.common.transport.transport import TransportError
from controller_manager.framework.client.client import Client

T = TypeVar("T", bound=Object)

_DEADLINE = 10.0  # maximum seconds that a caller waits for the API server, all attempts together
_PAUSES = tuple(0.5 * 1.5**number for number in range(4))
_TOKEN = re.compile(r"[!-~]{1,16384}")
_UNLISTED = Rules(incomplete=True, error="the API server that decides lists no rules")
_PASSING = (TransportError, InternalError, ServiceUnavailable, Timeout, TooManyRequests)


class Asker:
    """Creates reviews at an API server, with a few retries and a time limit."""

    def __init__(self, client: Client, log: Logger) -> None:
        self._client = client
        self._log = log

    async def ask(self, resource: Resource[T], question: T) -> T:
        """Create a review and return it with its status. Raises ServiceUnavailable after any error."""
        try:
            async with asyncio.timeout(_DEADLINE):
                return await self._ask(resource, question)
        except TimeoutError:
            why = f"no answer within {_DEADLINE:.0f} seconds"
        except (ApiError, TransportError) as error:
            why = str(error)
        self._log.warning("the API server cannot be asked about a caller", kind=resource.kind, error=why)
        raise ServiceUnavailable("the API server cannot be asked")

    async def _ask(self, resource: Resource[T], question: T) -> T:
        for pause in _PAUSES:
            try:
                return await self._client.create(resource, question)
            except _PASSING:
                await asyncio.sleep(pause * random_source().uniform(1.0, 1.2))
        return await self._client.create(resource, question)


class TokenReviewAuthenticator:
    """Authenticates bearer tokens by token reviews; results are cached for `lifetime` seconds.

    The cache key is a keyed digest, never the token. No audience is requested: a token is valid here if it is valid for
    the API server.
    """

    def __init__(self, asker: Asker, lifetime: float, metrics: TokenCacheMetrics) -> None:
        self._asker = asker
        self._lifetime = lifetime
        self._metrics = metrics
        self._answers: Answers[User | None] = Answers()
        self._digest = keyed_digest()

    async def authenticate_token(self, token: str) -> User | None:
        """Return the user of a token; None if it is malformed or the API server does not accept it.

        Raises ServiceUnavailable.
        """
        if not _TOKEN.fullmatch(token):
            return None
        question = self._digest(token.encode())
        with self._metrics.asked(known=self._answers.knows(question)):
            return await self._answers.get(question, lambda: self._review(token))

    async def _review(self, token: str) -> tuple[User | None, float]:
        with self._metrics.fetched():
            review = await self._asker.ask(TOKEN_REVIEWS, TokenReview(spec=TokenReviewSpec(token=token)))
        owner = _owner(review.status)
        # An error means that the server could not check the token; do not cache it, a retry may succeed.
        return owner, 0.0 if owner is None and review.status.error else self._lifetime


class SubjectAccessReviewAuthorizer:
    """Authorizes by subject access reviews; results are cached for `allowed` or `refused` seconds."""

    def __init__(self, asker: Asker, allowed: float, refused: float) -> None:
        self._asker = asker
        self._lifetimes = (refused, allowed)
        self._answers: Answers[Authorization] = Answers()
        self._digest = keyed_digest()

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return the decision of the API server. Raises ServiceUnavailable."""
        spec = _spec(attributes)
        return await self._answers.get(self._digest(msgspec.json.encode(spec)), lambda: self._review(spec))

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return incomplete rules: the API server is only asked about single requests."""
        return _UNLISTED

    async def _review(self, spec: SubjectAccessReviewSpec) -> tuple[Authorization, float]:
        review = await self._asker.ask(SUBJECT_ACCESS_REVIEWS, SubjectAccessReview(spec=spec))
        decision = _decision(review.status)
        return Authorization(decision, review.status.reason), self._lifetimes[decision is Decision.ALLOW]


def _owner(status: TokenReviewStatus) -> User | None:
    user = status.user
    if not status.authenticated or not user.username:
        return None
    return User(user.username, user.uid, user.groups, user.extra)


def _spec(attributes: AuthorizerAttributes) -> SubjectAccessReviewSpec:
    """Return the review spec of a request."""
    user, resource, other = attributes.user, None, None
    if attributes.resource:
        resource = ResourceAttributes(
            namespace=attributes.namespace,
            verb=attributes.verb,
            group=attributes.group,
            version=attributes.version,
            resource=attributes.resource,
            subresource=attributes.subresource,
            name=attributes.name,
        )
    else:
        other = NonResourceAttributes(path=attributes.path, verb=attributes.verb)
    return SubjectAccessReviewSpec(
        user=user.name,
        groups=user.groups,
        uid=user.uid,
        extra=dict(user.extra),
        resource_attributes=resource,
        non_resource_attributes=other,
    )


def _decision(status: SubjectAccessReviewStatus) -> Decision:
    if status.denied:
        return Decision.DENY
    return Decision.ALLOW if status.allowed else Decision.NO_OPINION
