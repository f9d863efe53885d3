"""Asks the API server who the callers of this process are and what they may see, and remembers the answers."""

import asyncio
import hmac
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from controller_manager.api.errors import ApiError, InternalError, ServiceUnavailable, Timeout, TooManyRequests
from controller_manager.api.model import Object
from controller_manager.api.resource import Resource
from controller_manager.api.reviews import (
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
from controller_manager.app.access.metrics import TokenCacheMetrics
from controller_manager.base.clock import monotonic
from controller_manager.base.log import Logger
from controller_manager.base.random import random_source
from controller_manager.client import Client, TransportError
from controller_manager.serving.authentication import User
from controller_manager.serving.authorization import Attributes, Authorization, Decision, Rules

# Answers of somebody else: remembered for a time, and asked for once however many wait for the same one.

V = TypeVar("V")

_REMEMBERED = 4096
_ASKED_AT_ONCE = 256


class Remembered(Generic[V]):
    """Answers by question, each until its time is over; of too many the oldest is forgotten. Pure."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._size = size
        self._answers: OrderedDict[bytes, tuple[float, V]] = OrderedDict()

    def find(self, question: bytes, now: float) -> tuple[V] | None:
        """The answer in a tuple of one, or None."""
        found = self._answers.get(question)
        return (found[1],) if found is not None and found[0] > now else None

    def keep(self, question: bytes, answer: V, until: float) -> None:
        """Remember an answer until a time."""
        self._answers[question] = (until, answer)
        self._answers.move_to_end(question)
        if len(self._answers) > self._size:
            self._answers.popitem(last=False)


class Answers(Generic[V]):
    """Gets an answer by asking, by waiting for another who asks, or from memory."""

    def __init__(self) -> None:
        self._remembered: Remembered[V] = Remembered()
        self._asked: dict[bytes, asyncio.Future[V]] = {}

    def knows(self, question: bytes) -> bool:
        """Return whether `get` would return at once."""
        return self._remembered.find(question, monotonic()) is not None

    async def get(self, question: bytes, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """The answer; `ask` gives it with the seconds it may be remembered.

        Raises ServiceUnavailable when `ask` does, or when too much is being asked already; that is not remembered. One
        who asks for others too and is cancelled leaves it to the next of them.
        """
        while True:
            found = self._remembered.find(question, monotonic())
            if found is not None:
                return found[0]
            asked = self._asked.get(question)
            if asked is None:
                return await self._ask(question, ask)
            await asyncio.wait((asked,))
            if not asked.cancelled():
                return asked.result()

    async def _ask(self, question: bytes, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        if len(self._asked) >= _ASKED_AT_ONCE:
            raise ServiceUnavailable("too many questions are being asked at once")
        asked = self._asked[question] = asyncio.get_running_loop().create_future()
        try:
            answer, lifetime = await ask()
        except ServiceUnavailable as error:
            asked.set_exception(error)
            asked.exception()  # whether anybody waits for it or not
            raise
        else:
            asked.set_result(answer)
            if lifetime > 0:
                self._remembered.keep(question, answer, monotonic() + lifetime)
            return answer
        finally:
            asked.cancel()
            del self._asked[question]


T = TypeVar("T", bound=Object)

_DEADLINE = 10.0  # seconds a caller waits for the API server at most, all attempts together
_PAUSES = tuple(0.5 * 1.5**number for number in range(4))
_TOKEN = re.compile(r"[!-~]{1,16384}")
_UNLISTED = Rules(incomplete=True, error="the API server that decides lists no rules")
_PASSING = (TransportError, InternalError, ServiceUnavailable, Timeout, TooManyRequests)


class Asker:
    """Puts questions to an API server: a few times if it fails, in a bounded time."""

    def __init__(self, client: Client, log: Logger) -> None:
        self._client = client
        self._log = log

    async def ask(self, resource: Resource[T], question: T) -> T:
        """The question with its answer. Raises ServiceUnavailable, whatever is the matter."""
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
    """Recognizes users by their tokens as the API server does; an answer is remembered for `lifetime` seconds.

    What is remembered is known by a digest with a key of this process, never by the token. No audience is asked for: a
    token is good here if it is good for the API server.
    """

    def __init__(self, asker: Asker, lifetime: float, metrics: TokenCacheMetrics) -> None:
        self._asker = asker
        self._lifetime = lifetime
        self._metrics = metrics
        self._answers: Answers[User | None] = Answers()
        self._digest = _keyed_digest()

    async def authenticate_token(self, token: str) -> User | None:
        """Return the owner of a token; None when it can be none or the API server does not accept it.

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
        # With an error the server says that it could not judge the token; it may think otherwise in a moment.
        return owner, 0.0 if owner is None and review.status.error else self._lifetime


class SubjectAccessReviewAuthorizer:
    """Decides as the API server does; answers are remembered for the seconds of their sort."""

    def __init__(self, asker: Asker, allowed: float, refused: float) -> None:
        self._asker = asker
        self._lifetimes = (refused, allowed)
        self._answers: Answers[Authorization] = Answers()
        self._digest = _keyed_digest()

    async def authorize(self, attributes: Attributes) -> Authorization:
        """Return what the API server decides. Raises ServiceUnavailable."""
        spec = _spec(attributes)
        return await self._answers.get(self._digest(msgspec.json.encode(spec)), lambda: self._review(spec))

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return that nothing is known: the API server is asked about one thing at a time."""
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


def _spec(attributes: Attributes) -> SubjectAccessReviewSpec:
    """Return the question about a request."""
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


def _keyed_digest() -> Callable[[bytes], bytes]:
    key = bytes.fromhex(random_source().token())
    return lambda text: hmac.digest(key, text, "sha256")
