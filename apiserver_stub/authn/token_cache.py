"""Caches the users of tokens verified by other servers, for a short time."""

import asyncio
from collections.abc import Sequence

from apiserver_stub.authn.tokens import FindToken, Recognized, TokenRefused
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.access_metrics import TokenCacheMetrics
from controller_manager.common.serving.answers import Answers, keyed_digest

_PATIENCE = 30.0  # seconds for a call shared by several requests
_SIZE = 32_768


class TokenCache:
    """Calls `find` once for concurrent requests with the same token, and caches its user for `lifetime` seconds, and
    unknown tokens for `refused` seconds. Errors are not cached.

    The cache key is a keyed digest of token and audiences, so that neither memory nor timing reveals a token. The last
    32,768 are cached.
    """

    def __init__(self, find: FindToken, metrics: TokenCacheMetrics, lifetime: float, refused: float = 0.0) -> None:
        self._find = find
        self._metrics = metrics
        self._lifetimes = (refused, lifetime)
        self._answers: Answers[Recognized | TokenRefused | None] = Answers(_SIZE)
        self._digest = keyed_digest()

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """See `FindToken`."""
        question = self._digest(question_of(token, audiences))
        with self._metrics.asked(known=self._answers.knows(question)):
            try:
                answer = await self._answers.get(question, lambda: self._ask(token, audiences))
            except ServiceUnavailable as error:
                raise TokenRefused(error.message) from None
        if isinstance(answer, TokenRefused):
            raise TokenRefused(str(answer))
        return answer

    async def _ask(self, token: str, audiences: Sequence[str]) -> tuple[Recognized | TokenRefused | None, float]:
        try:
            with self._metrics.fetched():
                found = await self._bounded(token, audiences)
        except TokenRefused as refused:
            return refused, 0.0
        if found is None:
            return None, self._lifetimes[False]
        return found, min(self._lifetimes[True], found.expires - wall_seconds())

    async def _bounded(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._find(token, audiences)
        except TimeoutError:
            raise TokenRefused("timed out while authenticating the token") from None


def question_of(token: str, audiences: Sequence[str]) -> bytes:
    """Encode token and audiences unambiguously."""
    parts = [part.encode("utf-8", "surrogateescape") for part in (token, *audiences)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
