"""Cache of token lookups: concurrent lookups are joined, results expire, and the token itself is not stored."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from apiserver_stub.authn.token_cache import TokenCache, question_of
from apiserver_stub.authn.tokens import Recognized, TokenRefused
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.access_metrics import TokenCacheMetrics
from controller_manager.common.serving.authentication import User

pytestmark = pytest.mark.virtual
US = ("us",)


class RemoteAuthenticator:
    """Knows `good` for any audience, rejects `old`, and takes `delay` seconds for each lookup."""

    def __init__(self, delay: float = 1.0) -> None:
        self.delay = delay
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        self.asked.append((token, tuple(audiences)))
        await asyncio.sleep(self.delay)
        if token == "old":
            raise TokenRefused("it is too old")
        return Recognized(User("jane"), tuple(audiences)) if token == "good" else None


def cache(remote: RemoteAuthenticator, refused: float = 0.0) -> tuple[TokenCache, CollectorRegistry]:
    registry = CollectorRegistry()
    return TokenCache(remote.find, TokenCacheMetrics(registry), 10.0, refused), registry


async def test_user_is_cached_for_10_seconds_per_audiences() -> None:
    remote = RemoteAuthenticator()
    tokens, registry = cache(remote)
    for _ in range(3):
        assert await tokens.find("good", US) == Recognized(User("jane"), US)
    await tokens.find("good", ("us", "you"))
    await tokens.find("good", ("usyou",))
    assert remote.asked == [("good", US), ("good", ("us", "you")), ("good", ("usyou",))]
    await asyncio.sleep(10)
    await tokens.find("good", US)
    assert len(remote.asked) == 4
    assert registry.get_sample_value("authentication_token_cache_request_total", {"status": "hit"}) == 2
    assert registry.get_sample_value("authentication_token_cache_request_total", {"status": "miss"}) == 4
    assert registry.get_sample_value("authentication_token_cache_fetch_total", {"status": "ok"}) == 4


async def test_user_is_cached_no_longer_than_token_is_valid() -> None:
    end = wall_seconds() + 5
    asked: list[str] = []

    async def find(token: str, audiences: Sequence[str]) -> Recognized | None:
        asked.append(token)
        return Recognized(User("jane"), tuple(audiences), end) if wall_seconds() < end else None

    tokens = TokenCache(find, TokenCacheMetrics(CollectorRegistry()), 10.0)
    assert await tokens.find("good", US)
    await asyncio.sleep(4)
    assert await tokens.find("good", US)
    assert len(asked) == 1
    await asyncio.sleep(2)
    assert await tokens.find("good", US) is None


async def test_rejections_are_not_cached() -> None:
    remote = RemoteAuthenticator()
    tokens, _ = cache(remote)
    for _ in range(2):
        assert await tokens.find("bad", US) is None
        with pytest.raises(TokenRefused, match="too old"):
            await tokens.find("old", US)
    assert [token for token, _ in remote.asked] == ["bad", "old"] * 2


async def test_unknown_tokens_may_be_cached_but_not_rejections() -> None:
    remote = RemoteAuthenticator()
    tokens, _ = cache(remote, refused=5.0)
    for _ in range(2):
        assert await tokens.find("bad", US) is None
        with pytest.raises(TokenRefused):
            await tokens.find("old", US)
    assert [token for token, _ in remote.asked] == ["bad", "old", "old"]


async def test_concurrent_lookups_of_a_token_are_joined() -> None:
    remote = RemoteAuthenticator()
    tokens, registry = cache(remote)
    found = await asyncio.gather(*(tokens.find("good", US) for _ in range(50)))
    assert len(remote.asked) == 1
    assert found == [Recognized(User("jane"), US)] * 50
    refused = await asyncio.gather(*(tokens.find("old", US) for _ in range(50)), return_exceptions=True)
    assert len(remote.asked) == 2
    assert {str(one) for one in refused} == {"it is too old"}
    assert registry.get_sample_value("authentication_token_cache_active_fetch_count", {"status": "blocked"}) == 0


async def test_lookup_without_answer_times_out() -> None:
    tokens, registry = cache(RemoteAuthenticator(delay=1000.0))
    began = asyncio.get_running_loop().time()
    with pytest.raises(TokenRefused, match="timed out"):
        await tokens.find("good", US)
    assert asyncio.get_running_loop().time() - began == 30
    assert registry.get_sample_value("authentication_token_cache_fetch_total", {"status": "error"}) == 1


async def test_too_many_concurrent_lookups_are_rejected() -> None:
    remote = RemoteAuthenticator()
    tokens, _ = cache(remote)
    found = await asyncio.gather(*(tokens.find(f"t{number}", US) for number in range(300)), return_exceptions=True)
    assert len(remote.asked) == 256
    assert sum(isinstance(one, TokenRefused) for one in found) == 44


QUESTIONS = st.tuples(st.text(max_size=5), st.lists(st.text(max_size=5), max_size=3))


@given(QUESTIONS, QUESTIONS)
def test_cache_keys_are_unique(one: tuple[str, list[str]], other: tuple[str, list[str]]) -> None:
    assert (question_of(*one) == question_of(*other)) == (one == other)
