"""Fault tests of the token cache: the authenticator hangs, fails or changes its answers, and callers are canceled.

Invariants:

- no user is authenticated by a token that was not accepted within the last ten seconds, or while the caller waited;
- no caller waits longer than the timeout of two lookups, one of them started by a canceled caller;
- an accepted token always authenticates, unless there are too many lookups at once or a lookup failed;
- at the end no lookup is pending.
"""

import asyncio
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.authn.token_cache import TokenCache
from apiserver_stub.authn.tokens import Recognized, TokenRefused
from controller_manager.common.base.random import random_source
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.access_metrics import TokenCacheMetrics
from controller_manager.common.serving.authentication import User

LIFETIME, PATIENCE = 10.0, 30.0
TOKENS = tuple(f"token-{number}" for number in range(6))


def now() -> float:
    return asyncio.get_running_loop().time()


class RemoteAuthenticator:
    """Accepts changing tokens; answers late, not at all, or with a failure."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[float]] = {token: [] for token in TOKENS}
        self.good = set(TOKENS[:3])
        self.failed: list[float] = []

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        chance = random_source()
        await asyncio.sleep(chance.uniform(0, 3))
        match chance.uniform(0, 1):
            case luck if luck < 0.1:
                self.failed.append(now())
                await asyncio.sleep(1000)
            case luck if luck < 0.3:
                self.failed.append(now())
                raise TokenRefused("it has failed")
        if token not in self.good:
            return None
        self.accepted[token].append(now())
        return Recognized(User(token), tuple(audiences))

    async def change(self) -> None:
        while True:
            await asyncio.sleep(random_source().uniform(1, 20))
            token = TOKENS[int(random_source().uniform(0, len(TOKENS)))]
            self.good ^= {token}


async def call(cache: TokenCache, remote: RemoteAuthenticator, token: str, problems: list[str]) -> None:
    began = now()
    try:
        found = await cache.find(token, ("us",))
    except TokenRefused:
        found = None
        if not any(began - PATIENCE <= moment <= now() for moment in remote.failed):
            problems.append(f"{token} was refused at {now()}, and nothing had failed")
    if now() - began > 2 * PATIENCE:
        problems.append(f"{token} waited from {began} to {now()}")
    if found is None:
        return
    if found.user.name != token:
        problems.append(f"{token} let in {found.user.name}")
    if not any(began - LIFETIME <= moment <= now() for moment in remote.accepted[token]):
        problems.append(f"{token} let in at {now()}, and was accepted at {remote.accepted[token][-1:]}")


@pytest.mark.virtual(seeds=200)
async def test_cached_tokens_are_valid_no_longer_than_allowed() -> None:
    remote, registry, problems = RemoteAuthenticator(), CollectorRegistry(), list[str]()
    cache = TokenCache(remote.find, TokenCacheMetrics(registry), LIFETIME)
    chance = random_source()
    async with Tasks() as tasks:
        tasks.start(remote.change(), name="changes of mind")
        callers = []
        for _ in range(300):
            token = TOKENS[int(chance.uniform(0, len(TOKENS)))]
            callers.append(tasks.start(call(cache, remote, token, problems), name="a caller"))
            await asyncio.sleep(chance.uniform(0, 1.5))
            if chance.uniform(0, 1) < 0.2:
                callers[int(chance.uniform(0, len(callers)))].cancel()
        await asyncio.wait(callers)
    assert not problems
    assert registry.get_sample_value("authentication_token_cache_active_fetch_count", {"status": "blocked"}) == 0
    assert registry.get_sample_value("authentication_token_cache_active_fetch_count", {"status": "in_flight"}) == 0
    assert not cache._answers._asked
