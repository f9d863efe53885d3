"""Owners of tokens that somebody else was asked about, remembered for a short time."""

import asyncio
from collections.abc import Sequence

from apiserver_stub.authn.tokens import FindToken, Recognized, TokenRefused
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.access_metrics import TokenCacheMetrics
from controller_manager.common.serving.answers import Answers, keyed_digest

_PATIENCE = 30.0  # seconds a question may take that several may wait for
_SIZE = 32_768


class TokenCache:
    """Asks `find` about a token once however many show it, and remembers its owner for `lifetime` seconds, and that it
    is nobody's for `refused`. That it was refused for a reason is not remembered.

    A token is known by a digest with a key of this process, together with the audiences it was shown to: neither memory
    nor the time of a comparison tells of it. The last 32,768 are remembered.
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
            raise TokenRefused("the token could not be judged in time") from None


def question_of(token: str, audiences: Sequence[str]) -> bytes:
    """Return token and audiences as one text that no others make."""
    parts = [part.encode("utf-8", "surrogateescape") for part in (token, *audiences)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
