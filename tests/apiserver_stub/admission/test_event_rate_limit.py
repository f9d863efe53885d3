"""Event rate limits: shared buckets, refill over time, and a limited number of buckets."""

import asyncio
from typing import Any

import pytest

from apiserver_stub.admission import Attributes
from apiserver_stub.admission.plugins.event_rate_limit import EventRateLimit, EventRateLimitConfiguration, Limit
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.worker import ALONE, Worker
from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.serving.authentication import User

KINDS = built_in()


def plugin(*limits: Limit, worker: Worker = ALONE) -> EventRateLimit:
    return EventRateLimit(EventRateLimitConfiguration(api_version="", limits=limits), worker)


def event(
    *, namespace: str = "n", user: str = "u", of: str = "pod", group: str = "", dry_run: bool = False
) -> Attributes:
    kind = KINDS.find(group, "v1", "events")
    assert kind is not None
    tree: dict[str, Any] = {"source": {"component": "c"}, "involvedObject": {"kind": "Pod", "name": of}}
    return Attributes("create", kind, namespace, "e", "", tree, None, User(user), dry_run)


async def admitted(of: EventRateLimit, *events: Attributes) -> list[bool]:
    found = []
    for one in events:
        try:
            await of.validate(one)
            found.append(True)
        except TooManyRequests as error:
            found.append(not error.message.startswith("Too many requests: "))
    return found


@pytest.mark.virtual
async def test_bucket_refills_over_time() -> None:
    limit = plugin(Limit(type="Server", qps=2, burst=3))
    assert await admitted(limit, *[event()] * 4) == [True, True, True, False]
    await asyncio.sleep(0.5)
    assert await admitted(limit, event(), event()) == [True, False]
    await asyncio.sleep(60)
    assert await admitted(limit, *[event()] * 4) == [True, True, True, False]


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("kind", "other"),
    [("Namespace", event(namespace="m")), ("User", event(user="v")), ("SourceAndObject", event(of="q"))],
)
async def test_bucket_is_shared_by_key_of_limit_type(kind: str, other: Attributes) -> None:
    limit = plugin(Limit(type=kind, qps=1, burst=1))
    assert await admitted(limit, event(), event(), other, other) == [True, False, True, False]


@pytest.mark.virtual
async def test_workers_split_server_limit_but_not_user_limit() -> None:
    shared = [plugin(Limit(type="Server", qps=3, burst=5), worker=Worker(number, 2)) for number in range(2)]
    assert [sum(await admitted(one, *[event()] * 9)) for one in shared] == [3, 2]
    await asyncio.sleep(10)
    assert [sum(await admitted(one, *[event()] * 9)) for one in shared] == [3, 2]
    await asyncio.sleep(0.5)
    assert [await admitted(one, event()) for one in shared] == [[False], [False]]
    await asyncio.sleep(0.2)
    assert [await admitted(one, event()) for one in shared] == [[True], [True]]
    own = plugin(Limit(type="User", qps=3, burst=5), worker=Worker(0, 2))
    assert sum(await admitted(own, *[event()] * 9)) == 5


@pytest.mark.virtual
async def test_each_limit_takes_a_token_and_errors_name_exhausted() -> None:
    limit = plugin(Limit(type="User", qps=1, burst=2), Limit(type="Namespace", qps=1, burst=1))
    assert await admitted(limit, event(), event()) == [True, False]
    with pytest.raises(TooManyRequests, match="User 'u', Namespace 'n'"):
        await limit.validate(event())


@pytest.mark.virtual
async def test_dry_runs_and_other_group_take_no_tokens() -> None:
    limit = plugin(Limit(type="Server", qps=1, burst=1))
    assert await admitted(limit, event(dry_run=True), event(group="events.k8s.io"), event(), event()) == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.virtual
async def test_least_recently_used_bucket_is_evicted() -> None:
    limit = plugin(Limit(type="User", qps=1, burst=1, cache_size=2))
    a, b, c = (event(user=name) for name in "abc")
    assert await admitted(limit, a, b, a, c, a, b) == [True, True, False, True, False, True]
