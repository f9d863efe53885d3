"""Asks the API server who the callers of this process are and what they may see, and remembers the answers."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from controller_manager.api.errors import ServiceUnavailable
from controller_manager.api.reviews import (
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    NonResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    TokenReview,
    TokenReviewSpec,
)
from controller_manager.base.clock import monotonic
from controller_manager.client import Client, TransportError
from controller_manager.serving import Identity

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_REMEMBERED = 1024


class Remembered(Generic[K, V]):
    """Answers by question, each until its time is over; of too many the oldest is forgotten. Pure."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._size = size
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def find(self, question: K, now: float) -> tuple[V] | None:
        """The answer in a tuple of one, or None."""
        found = self._answers.get(question)
        return (found[1],) if found is not None and found[0] > now else None

    def keep(self, question: K, answer: V, until: float) -> None:
        """Remember an answer until a time."""
        self._answers[question] = (until, answer)
        self._answers.move_to_end(question)
        if len(self._answers) > self._size:
            self._answers.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds each sort of answer is remembered."""

    tokens: float = 10.0
    allowed: float = 10.0
    refused: float = 10.0


class Delegated:
    """Who a token belongs to, and what an identity may do, as the API server sees it.

    Both raise ServiceUnavailable when it cannot be asked, and the ApiError it answers with.
    """

    def __init__(self, client: Client, lifetimes: Lifetimes) -> None:
        self._client = client
        self._lifetimes = lifetimes
        self._owners: Remembered[str, Identity | None] = Remembered()
        self._decisions: Remembered[tuple[Identity, str, str], bool] = Remembered()

    async def authenticate(self, token: str) -> Identity | None:
        """The owner of a bearer token; None when the API server does not accept it."""
        known = self._owners.find(token, monotonic())
        if known is not None:
            return known[0]
        try:
            review = await self._client.create(TOKEN_REVIEWS, TokenReview(spec=TokenReviewSpec(token=token)))
        except TransportError as error:
            raise ServiceUnavailable("the API server cannot be asked about the token") from error
        user = review.status.user
        owner = Identity(user.username, user.groups) if review.status.authenticated else None
        self._owners.keep(token, owner, monotonic() + self._lifetimes.tokens)
        return owner

    async def authorize(self, identity: Identity, verb: str, path: str) -> bool:
        """Whether the API server lets `identity` use `verb` on a path that is no resource."""
        question = (identity, verb, path)
        known = self._decisions.find(question, monotonic())
        if known is not None:
            return known[0]
        attributes = NonResourceAttributes(path=path, verb=verb)
        spec = SubjectAccessReviewSpec(user=identity.name, groups=identity.groups, non_resource_attributes=attributes)
        try:
            review = await self._client.create(SUBJECT_ACCESS_REVIEWS, SubjectAccessReview(spec=spec))
        except TransportError as error:
            raise ServiceUnavailable("the API server cannot be asked what the caller may see") from error
        allowed = review.status.allowed
        lifetime = self._lifetimes.allowed if allowed else self._lifetimes.refused
        self._decisions.keep(question, allowed, monotonic() + lifetime)
        return allowed
