"""Providers that rotate keys, are down, hang or answer wrongly: the effect on tokens."""

import asyncio

import pytest

from apiserver_stub.authn.jwt.fetcher import FetchError
from controller_manager.common.base.clock import wall_seconds
from tests.apiserver_stub.authn.jwt.conftest import RunAuthenticators, document, rules
from tests.apiserver_stub.authn.jwt.issuer import DISCOVERY, EC_KEYS, KEYS, RSA_KEYS, URL, Issuer, jwk

pytestmark = pytest.mark.virtual
NEW = RSA_KEYS[1]


def down() -> FetchError:
    return FetchError("connection refused")


async def never() -> None:
    await asyncio.sleep(1e6)


async def test_keys_are_fetched_at_start(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        assert issuer.asked == [(DISCOVERY, ""), (KEYS, "")]
        assert await authn.user(issuer.token()) is not None
        assert len(issuer.asked) == 2


async def test_token_with_new_key_id_triggers_key_fetch(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        issuer.keys = {"one": RSA_KEYS[0], "two": NEW}
        assert await authn.user(issuer.token(NEW, kid="two")) is not None
        assert await authn.user(issuer.token()) is not None
        assert issuer.count(KEYS) == 2
        assert issuer.count(DISCOVERY) == 1


async def test_replaced_key_with_same_id_is_fetched(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        issuer.keys = {"one": NEW}
        assert await authn.user(issuer.token(NEW)) is not None
        assert await authn.user(issuer.token(RSA_KEYS[0])) is None


async def test_withdrawn_key_is_trusted_for_at_most_5_minutes(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    async with run_authenticators() as authn:
        old = issuer.token()
        issuer.keys = {"two": NEW}
        await asyncio.sleep(200)
        assert await authn.user(old) is not None
        await asyncio.sleep(101)
        assert await authn.user(old) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("max-age=600", 600), ("public, max-age=120, must-revalidate", 120), ("no-store", 300), ("max-age=1", 60),
     ("max-age=999999", 3600), ("s-maxage=90", 300)],
)  # fmt: skip
async def test_keys_are_refreshed_when_max_age_passes(
    issuer: Issuer, run_authenticators: RunAuthenticators, header: str, seconds: float
) -> None:
    issuer.headers = {"cache-control": header}
    async with run_authenticators():
        await asyncio.sleep(seconds - 1)
        assert issuer.count(KEYS) == 1
        await asyncio.sleep(2)
        assert issuer.count(KEYS) == 2


async def test_forged_tokens_fetch_keys_at_most_every_5_seconds(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    async with run_authenticators() as authn:
        for number in range(1000):
            assert await authn.user(issuer.token(NEW, kid=f"key {number}")) is None
            await asyncio.sleep(0.1)
        assert 20 <= issuer.count(KEYS) <= 25
        issuer.keys["two"] = NEW
        await asyncio.sleep(5)
        assert await authn.user(issuer.token(NEW, kid="two")) is not None


async def test_concurrent_tokens_of_new_key_share_one_fetch(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    async with run_authenticators() as authn:
        issuer.keys["two"] = NEW

        async def slowly() -> object:
            await asyncio.sleep(2)
            return {"keys": [jwk(key, name) for name, key in issuer.keys.items()]}

        issuer.answers[KEYS] = slowly
        token = issuer.token(NEW, kid="two")
        users = await asyncio.gather(*(authn.user(token) for _ in range(20)))
        assert all(users)
        assert issuer.count(KEYS) <= 3


async def test_unavailable_provider_keeps_its_keys(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        issuer.answers = {KEYS: down, DISCOVERY: down}
        await asyncio.sleep(3000)
        assert await authn.user(issuer.token(exp=2**40)) is not None
        assert await authn.user(issuer.token(NEW, kid="two", exp=2**40)) is None
        assert issuer.count(DISCOVERY) + issuer.count(KEYS) < 320
        issuer.answers = {}
        issuer.keys["two"] = NEW
        await asyncio.sleep(11)
        assert await authn.user(issuer.token(NEW, kid="two")) is not None


async def test_provider_down_at_start_fails_only_its_tokens(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    other = "https://other.example"
    issuer.answers[f"{other}/.well-known/openid-configuration"] = never
    async with run_authenticators(document(rules(), rules(issuer__url=other))) as authn:
        begun = asyncio.get_running_loop().time()
        assert await authn.user(issuer.token()) is not None
        assert asyncio.get_running_loop().time() == begun
        waiting = [asyncio.create_task(authn.user(issuer.token(iss=other))) for _ in range(1000)]
        await asyncio.sleep(1)
        assert sum(not one.done() for one in waiting) <= 32
        assert await authn.user(issuer.token()) is not None
        await asyncio.sleep(10)
        assert not any(one.result() for one in waiting)


async def test_provider_is_retried_until_available(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    issuer.answers = {DISCOVERY: down}
    async with run_authenticators() as authn:
        token = issuer.token()
        begun = asyncio.get_running_loop().time()
        assert await authn.user(token) is None
        assert "connection refused" in authn.why
        assert asyncio.get_running_loop().time() == begun
        await asyncio.sleep(120)
        assert 12 <= issuer.count(DISCOVERY) <= 18
        issuer.answers = {}
        await asyncio.sleep(11)
        assert await authn.user(token) is not None


async def test_hanging_key_fetch_delays_tokens_at_most_10_seconds(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    issuer.answers = {KEYS: never}
    async with run_authenticators() as authn:
        begun = asyncio.get_running_loop().time()
        users = await asyncio.gather(*(authn.user(issuer.token()) for _ in range(200)))
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
async def test_malformed_provider_is_retried(what: str, issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    issuer.answers = dict(LIES[what])
    async with run_authenticators() as authn:
        assert await authn.user(issuer.token()) is None
        issuer.answers = {}
        await asyncio.sleep(11)
        assert await authn.user(issuer.token()) is not None


async def test_changed_jwks_uri_is_followed(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        moved = f"{URL}/new/keys"
        issuer.answers = {
            KEYS: down,
            moved: {"keys": [jwk(NEW, "two")]},
            DISCOVERY: {"issuer": URL, "jwks_uri": moved},
        }
        await asyncio.sleep(302)
        assert await authn.user(issuer.token(NEW, kid="two")) is not None


async def test_discovery_url_must_return_the_same_issuer(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    place = "https://inside.example/discovery"
    issuer.answers = {place: {"issuer": "https://inside.example", "jwks_uri": KEYS}}
    async with run_authenticators(document(rules(issuer__discoveryURL=place))) as authn:
        assert await authn.user(issuer.token()) is None
        issuer.answers = {place: {"issuer": URL, "jwks_uri": KEYS}}
        await asyncio.sleep(11)
        assert await authn.user(issuer.token()) is not None
        assert issuer.count(DISCOVERY) == 0


async def test_at_most_64_keys_are_used(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    issuer.keys = {**{f"key {number}": RSA_KEYS[1] for number in range(64)}, "last": EC_KEYS["ES256"]}
    async with run_authenticators() as authn:
        assert await authn.user(issuer.token(NEW, kid="key 63")) is not None
        assert await authn.user(issuer.token(EC_KEYS["ES256"], "ES256", kid="last")) is None


async def test_audience_must_be_of_this_server(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        find = authn.authentication.authenticators.find
        end = int(wall_seconds()) + 60
        found = await find(issuer.token(exp=end), ("elsewhere", "api"))
        assert found is not None
        assert (found.audiences, found.expires) == (("api",), end)
        asked = len(issuer.asked)
        assert await find(issuer.token(NEW, kid="new"), ("elsewhere",)) is None
        assert len(issuer.asked) == asked


async def test_metrics_of_tokens_and_key_fetches(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    name = "apiserver_authentication_jwt_authenticator"
    async with run_authenticators() as authn:
        await authn.user(issuer.token())
        await authn.user(issuer.token(exp=1))
        await authn.user("unknown")
        await authn.user(issuer.token(iss="https://evil.example"))
        assert authn.sample(f"{name}_latency_seconds_count", result="success") == 1
        assert authn.sample(f"{name}_latency_seconds_count", result="failure") == 1
        fetched = authn.sample(f"{name}_jwks_fetch_last_timestamp_seconds", result="success")
        assert fetched
        assert authn.sample(f"{name}_jwks_fetch_last_timestamp_seconds", result="failure") is None
        assert authn.sample(f"{name}_jwks_fetch_last_key_set_info") == 1
        issuer.answers = {KEYS: down}
        await asyncio.sleep(301)
        assert authn.sample(f"{name}_jwks_fetch_last_timestamp_seconds", result="failure") > fetched
        assert authn.sample(f"{name}_jwks_fetch_last_timestamp_seconds", result="success") == fetched
