"""The file is reloaded while tokens are verified."""

import asyncio
import hashlib

import pytest

from apiserver_stub.authn.jwt.fetcher import FetchError
from tests.apiserver_stub.authn.jwt.conftest import RunAuthenticators, RunningAuthenticators, document, rules
from tests.apiserver_stub.authn.jwt.issuer import DISCOVERY, KEYS, RSA_KEYS, URL, Issuer, jwk

pytestmark = pytest.mark.virtual
OTHER = "https://other.example"
OTHER_DISCOVERY = f"{OTHER}/.well-known/openid-configuration"
PREFIXED = document(rules(claimMappings__username={"claim": "sub", "prefix": "p:"}))
RELOADS = "apiserver_authentication_config_controller_automatic_reloads_total"


def publish_other(issuer: Issuer) -> None:
    issuer.answers[OTHER_DISCOVERY] = {"issuer": OTHER, "jwks_uri": f"{OTHER}/keys"}
    issuer.answers[f"{OTHER}/keys"] = {"keys": [jwk(RSA_KEYS[0], "one")]}


async def name(authn: RunningAuthenticators, token: str) -> str:
    user = await authn.user(token)
    return user.name if user else ""


async def test_changed_file_takes_effect_without_key_fetch(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    async with run_authenticators() as authn:
        assert await name(authn, issuer.token()) == "jane"
        authn.file.write_text(PREFIXED)
        await asyncio.sleep(6)
        assert await name(authn, issuer.token()) == "p:jane"
        assert issuer.count(KEYS) == 1
        assert authn.sample(RELOADS, status="success") == 1
        digest = f"sha256:{hashlib.sha256(PREFIXED.encode()).hexdigest()}"
        assert authn.sample("apiserver_authentication_config_controller_last_config_info", hash=digest) == 1


BROKEN = {
    "no YAML": "{",
    "nothing": "",
    "another kind": '{"apiVersion": "v1", "kind": "Pod"}',
    "an unknown field": document(rules(issuer__colour="red")),
    "a rule": document(rules(claimValidationRules=[{"expression": "claims."}])),
    "the issuer of the cluster": document(rules(issuer__url="https://kubernetes.default.svc")),
    "other rules for the anonymous": document(rules(), anonymous={"enabled": True}),
    "a network without a proxy": document(rules(issuer__egressSelectorType="cluster")),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_invalid_file_is_ignored_and_counted_once(
    what: str, issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    async with run_authenticators() as authn:
        authn.file.write_text(BROKEN[what])
        await asyncio.sleep(60)
        assert await name(authn, issuer.token()) == "jane"
        assert authn.sample(RELOADS, status="failure") == 1
        assert authn.sample(RELOADS, status="success") is None
        authn.file.write_text(PREFIXED)
        await asyncio.sleep(6)
        assert await name(authn, issuer.token()) == "p:jane"


async def test_deleted_file_is_ignored(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        authn.file.unlink()
        await asyncio.sleep(60)
        assert await name(authn, issuer.token()) == "jane"
        assert authn.sample(RELOADS, status="failure") == 1
        authn.file.write_text(PREFIXED)
        await asyncio.sleep(6)
        assert await name(authn, issuer.token()) == "p:jane"


async def test_file_with_unavailable_new_issuer_is_not_used_yet(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    async with run_authenticators() as authn:
        authn.file.write_text(document(rules(issuer__url=OTHER)))
        await asyncio.sleep(70)
        assert await name(authn, issuer.token()) == "jane"
        assert await name(authn, issuer.token(iss=OTHER)) == ""
        assert authn.sample(RELOADS, status="failure") == 1
        publish_other(issuer)
        await asyncio.sleep(20)
        assert await name(authn, issuer.token(iss=OTHER)) == "jane"
        assert await name(authn, issuer.token()) == ""


async def test_unavailable_old_issuer_does_not_block_new_file(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    issuer.answers[DISCOVERY] = FetchError("down")
    publish_other(issuer)
    async with run_authenticators() as authn:
        authn.file.write_text(document(rules(), rules(issuer__url=OTHER)))
        await asyncio.sleep(10)
        assert await name(authn, issuer.token(iss=OTHER)) == "jane"
        del issuer.answers[DISCOVERY]
        await asyncio.sleep(11)
        assert await name(authn, issuer.token()) == "jane"


async def test_removed_issuer_is_not_polled_for_keys(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators(document(rules(), rules(issuer__url=OTHER))) as authn:
        authn.file.write_text(document(rules()))
        await asyncio.sleep(70)
        asked = issuer.count(OTHER_DISCOVERY)
        assert asked
        await asyncio.sleep(600)
        assert issuer.count(OTHER_DISCOVERY) == asked
        info = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info"
        assert authn.sample(info) == 1


async def test_issuer_removed_and_added_again_is_polled(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        authn.file.write_text(document())
        await asyncio.sleep(10)
        assert await name(authn, issuer.token()) == ""
        authn.file.write_text(document(rules()))
        await asyncio.sleep(10)
        assert await name(authn, issuer.token()) == "jane"
        await asyncio.sleep(100)
        issuer.keys = {"two": RSA_KEYS[1]}
        assert await name(authn, issuer.token(RSA_KEYS[1], kid="two")) == "jane"


async def test_changed_ca_of_issuer_opens_new_connection(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators() as authn:
        place = f"{URL}/discovery"
        issuer.answers[place] = {"issuer": URL, "jwks_uri": KEYS}
        authn.file.write_text(document(rules(issuer__discoveryURL=place)))
        await asyncio.sleep(10)
        assert issuer.count(place) == 1
        assert await name(authn, issuer.token()) == "jane"


async def test_file_may_start_without_issuers(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators(document()) as authn:
        assert await name(authn, issuer.token()) == ""
        authn.file.write_text(document(rules()))
        await asyncio.sleep(10)
        assert await name(authn, issuer.token()) == "jane"
