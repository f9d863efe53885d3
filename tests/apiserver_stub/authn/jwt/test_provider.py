"""Providers that change their keys, are down, hang and lie: what that costs, and whom."""

import asyncio

import pytest

from apiserver_stub.authn.jwt.fetcher import FetchError
from controller_manager.common.base.clock import wall_seconds
from tests.apiserver_stub.authn.jwt.conftest import Judging, document, rules
from tests.apiserver_stub.authn.jwt.issuer import DISCOVERY, EC_KEYS, KEYS, RSA_KEYS, URL, Issuer, jwk

pytestmark = pytest.mark.virtual
NEW = RSA_KEYS[1]


def down() -> FetchError:
    return FetchError("connection refused")


async def never() -> None:
    await asyncio.sleep(1e6)


async def test_keys_are_fetched_before_the_first_token_comes(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        assert issuer.asked == [(DISCOVERY, ""), (KEYS, "")]
        assert await judge.user(issuer.token()) is not None
        assert len(issuer.asked) == 2


async def test_a_new_key_is_found_when_the_first_token_names_it(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        issuer.keys = {"one": RSA_KEYS[0], "two": NEW}
        assert await judge.user(issuer.token(NEW, kid="two")) is not None
        assert await judge.user(issuer.token()) is not None
        assert issuer.count(KEYS) == 2
        assert issuer.count(DISCOVERY) == 1


async def test_a_new_key_under_an_old_name_is_found_too(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        issuer.keys = {"one": NEW}
        assert await judge.user(issuer.token(NEW)) is not None
        assert await judge.user(issuer.token(RSA_KEYS[0])) is None


async def test_a_key_that_is_withdrawn_is_believed_for_five_minutes_at_most(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        old = issuer.token()
        issuer.keys = {"two": NEW}
        await asyncio.sleep(200)
        assert await judge.user(old) is not None
        await asyncio.sleep(101)
        assert await judge.user(old) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("max-age=600", 600), ("public, max-age=120, must-revalidate", 120), ("no-store", 300), ("max-age=1", 60),
     ("max-age=999999", 3600), ("s-maxage=90", 300)],
)  # fmt: skip
async def test_keys_are_fetched_again_when_they_are_old(
    issuer: Issuer, judging: Judging, header: str, seconds: float
) -> None:
    issuer.headers = {"cache-control": header}
    async with judging():
        await asyncio.sleep(seconds - 1)
        assert issuer.count(KEYS) == 1
        await asyncio.sleep(2)
        assert issuer.count(KEYS) == 2


async def test_a_flood_of_forged_tokens_has_keys_fetched_every_five_seconds_at_most(
    issuer: Issuer, judging: Judging
) -> None:
    async with judging() as judge:
        for number in range(1000):
            assert await judge.user(issuer.token(NEW, kid=f"key {number}")) is None
            await asyncio.sleep(0.1)
        assert 20 <= issuer.count(KEYS) <= 25
        issuer.keys["two"] = NEW
        await asyncio.sleep(5)
        assert await judge.user(issuer.token(NEW, kid="two")) is not None


async def test_tokens_of_a_new_key_that_come_together_wait_for_one_fetch(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        issuer.keys["two"] = NEW

        async def slowly() -> object:
            await asyncio.sleep(2)
            return {"keys": [jwk(key, name) for name, key in issuer.keys.items()]}

        issuer.answers[KEYS] = slowly
        token = issuer.token(NEW, kid="two")
        users = await asyncio.gather(*(judge.user(token) for _ in range(20)))
        assert all(users)
        assert issuer.count(KEYS) <= 3


async def test_a_provider_that_is_down_keeps_its_keys(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        issuer.answers = {KEYS: down, DISCOVERY: down}
        await asyncio.sleep(3000)
        assert await judge.user(issuer.token(exp=2**40)) is not None
        assert await judge.user(issuer.token(NEW, kid="two", exp=2**40)) is None
        assert issuer.count(DISCOVERY) + issuer.count(KEYS) < 320
        issuer.answers = {}
        issuer.keys["two"] = NEW
        await asyncio.sleep(11)
        assert await judge.user(issuer.token(NEW, kid="two")) is not None


async def test_a_provider_that_is_down_at_the_start_costs_only_its_tokens(issuer: Issuer, judging: Judging) -> None:
    other = "https://other.example"
    issuer.answers[f"{other}/.well-known/openid-configuration"] = never
    async with judging(document(rules(), rules(issuer__url=other))) as judge:
        begun = asyncio.get_running_loop().time()
        assert await judge.user(issuer.token()) is not None
        assert asyncio.get_running_loop().time() == begun
        waiting = [asyncio.create_task(judge.user(issuer.token(iss=other))) for _ in range(1000)]
        await asyncio.sleep(1)
        assert sum(not one.done() for one in waiting) <= 32
        assert await judge.user(issuer.token()) is not None
        await asyncio.sleep(10)
        assert not any(one.result() for one in waiting)


async def test_a_provider_that_comes_up_later_is_found(issuer: Issuer, judging: Judging) -> None:
    issuer.answers = {DISCOVERY: down}
    async with judging() as judge:
        token = issuer.token()
        begun = asyncio.get_running_loop().time()
        assert await judge.user(token) is None
        assert "connection refused" in judge.why
        assert asyncio.get_running_loop().time() == begun
        await asyncio.sleep(120)
        assert 12 <= issuer.count(DISCOVERY) <= 18
        issuer.answers = {}
        await asyncio.sleep(11)
        assert await judge.user(token) is not None


async def test_keys_that_hang_cost_a_token_ten_seconds_and_few_of_them(issuer: Issuer, judging: Judging) -> None:
    issuer.answers = {KEYS: never}
    async with judging() as judge:
        begun = asyncio.get_running_loop().time()
        users = await asyncio.gather(*(judge.user(issuer.token()) for _ in range(200)))
        assert not any(users)
        assert asyncio.get_running_loop().time() <= begun + 10


LIES = {
    "another issuer": {DISCOVERY: {"issuer": "https://evil.example", "jwks_uri": KEYS}},
    "an issuer with a slash": {DISCOVERY: {"issuer": URL + "/", "jwks_uri": KEYS}},
    "no issuer": {DISCOVERY: {"jwks_uri": KEYS}},
    "no keys": {DISCOVERY: {"issuer": URL}},
    "a list": {DISCOVERY: []},
    "a number for an issuer": {DISCOVERY: {"issuer": 5, "jwks_uri": KEYS}},
    "no JSON": {DISCOVERY: b"<html>"},
    "no UTF-8": {DISCOVERY: b'{"issuer": "\xff"}'},
    "deep": {DISCOVERY: b"[" * 100_000},
    "keys that are no JSON": {KEYS: b"<html>"},
    "keys that are a list": {KEYS: []},
    "keys that are texts": {KEYS: {"keys": ["one"]}},
    "keys that are null": {KEYS: {"keys": None}},
    "no member for keys": {KEYS: {}},
    "deep keys": {KEYS: b'{"keys":' + b"[" * 100_000},
    "no key": {KEYS: {"keys": []}},
}


@pytest.mark.parametrize("what", LIES)
async def test_a_provider_that_lies_is_asked_until_it_does_not(what: str, issuer: Issuer, judging: Judging) -> None:
    issuer.answers = dict(LIES[what])
    async with judging() as judge:
        assert await judge.user(issuer.token()) is None
        issuer.answers = {}
        await asyncio.sleep(11)
        assert await judge.user(issuer.token()) is not None


async def test_keys_that_move_are_found(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        moved = f"{URL}/new/keys"
        issuer.answers = {
            KEYS: down,
            moved: {"keys": [jwk(NEW, "two")]},
            DISCOVERY: {"issuer": URL, "jwks_uri": moved},
        }
        await asyncio.sleep(302)
        assert await judge.user(issuer.token(NEW, kid="two")) is not None


async def test_discovery_url_must_return_the_same_issuer(issuer: Issuer, judging: Judging) -> None:
    place = "https://inside.example/discovery"
    issuer.answers = {place: {"issuer": "https://inside.example", "jwks_uri": KEYS}}
    async with judging(document(rules(issuer__discoveryURL=place))) as judge:
        assert await judge.user(issuer.token()) is None
        issuer.answers = {place: {"issuer": URL, "jwks_uri": KEYS}}
        await asyncio.sleep(11)
        assert await judge.user(issuer.token()) is not None
        assert issuer.count(DISCOVERY) == 0


async def test_a_set_of_very_many_keys_is_bounded(issuer: Issuer, judging: Judging) -> None:
    issuer.keys = {**{f"key {number}": RSA_KEYS[1] for number in range(64)}, "last": EC_KEYS["ES256"]}
    async with judging() as judge:
        assert await judge.user(issuer.token(NEW, kid="key 63")) is not None
        assert await judge.user(issuer.token(EC_KEYS["ES256"], "ES256", kid="last")) is None


async def test_audience_must_be_of_this_server(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        find = judge.authentication.authenticators.find
        end = int(wall_seconds()) + 60
        found = await find(issuer.token(exp=end), ("elsewhere", "api"))
        assert found is not None
        assert (found.audiences, found.expires) == (("api",), end)
        asked = len(issuer.asked)
        assert await find(issuer.token(NEW, kid="new"), ("elsewhere",)) is None
        assert len(issuer.asked) == asked


async def test_metrics_of_tokens_and_key_fetches(issuer: Issuer, judging: Judging) -> None:
    name = "apiserver_authentication_jwt_authenticator"
    async with judging() as judge:
        await judge.user(issuer.token())
        await judge.user(issuer.token(exp=1))
        await judge.user("unknown")
        await judge.user(issuer.token(iss="https://evil.example"))
        assert judge.sample(f"{name}_latency_seconds_count", result="success") == 1
        assert judge.sample(f"{name}_latency_seconds_count", result="failure") == 1
        fetched = judge.sample(f"{name}_jwks_fetch_last_timestamp_seconds", result="success")
        assert fetched
        assert judge.sample(f"{name}_jwks_fetch_last_timestamp_seconds", result="failure") is None
        assert judge.sample(f"{name}_jwks_fetch_last_key_set_info") == 1
        issuer.answers = {KEYS: down}
        await asyncio.sleep(301)
        assert judge.sample(f"{name}_jwks_fetch_last_timestamp_seconds", result="failure") > fetched
        assert judge.sample(f"{name}_jwks_fetch_last_timestamp_seconds", result="success") == fetched
