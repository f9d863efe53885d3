"""The file changes while tokens come: what is used then, what stays, and what is counted."""

import asyncio
import hashlib

import pytest

from apiserver_stub.authn.jwt.fetcher import FetchError
from tests.apiserver_stub.authn.jwt.conftest import Judge, Judging, document, rules
from tests.apiserver_stub.authn.jwt.issuer import DISCOVERY, KEYS, RSA_KEYS, URL, Issuer, jwk

pytestmark = pytest.mark.virtual
OTHER = "https://other.example"
OTHER_DISCOVERY = f"{OTHER}/.well-known/openid-configuration"
PREFIXED = document(rules(claimMappings__username={"claim": "sub", "prefix": "p:"}))
RELOADS = "apiserver_authentication_config_controller_automatic_reloads_total"


def publish_other(issuer: Issuer) -> None:
    issuer.answers[OTHER_DISCOVERY] = {"issuer": OTHER, "jwks_uri": f"{OTHER}/keys"}
    issuer.answers[f"{OTHER}/keys"] = {"keys": [jwk(RSA_KEYS[0], "one")]}


async def name(judge: Judge, token: str) -> str:
    user = await judge.user(token)
    return user.name if user else ""


async def test_changed_file_takes_effect_without_key_fetch(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        assert await name(judge, issuer.token()) == "jane"
        judge.file.write_text(PREFIXED)
        await asyncio.sleep(6)
        assert await name(judge, issuer.token()) == "p:jane"
        assert issuer.count(KEYS) == 1
        assert judge.sample(RELOADS, status="success") == 1
        digest = f"sha256:{hashlib.sha256(PREFIXED.encode()).hexdigest()}"
        assert judge.sample("apiserver_authentication_config_controller_last_config_info", hash=digest) == 1


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
async def test_invalid_file_is_ignored_and_counted_once(what: str, issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        judge.file.write_text(BROKEN[what])
        await asyncio.sleep(60)
        assert await name(judge, issuer.token()) == "jane"
        assert judge.sample(RELOADS, status="failure") == 1
        assert judge.sample(RELOADS, status="success") is None
        judge.file.write_text(PREFIXED)
        await asyncio.sleep(6)
        assert await name(judge, issuer.token()) == "p:jane"


async def test_deleted_file_is_ignored(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        judge.file.unlink()
        await asyncio.sleep(60)
        assert await name(judge, issuer.token()) == "jane"
        assert judge.sample(RELOADS, status="failure") == 1
        judge.file.write_text(PREFIXED)
        await asyncio.sleep(6)
        assert await name(judge, issuer.token()) == "p:jane"


async def test_file_with_unavailable_new_issuer_is_not_used_yet(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        judge.file.write_text(document(rules(issuer__url=OTHER)))
        await asyncio.sleep(70)
        assert await name(judge, issuer.token()) == "jane"
        assert await name(judge, issuer.token(iss=OTHER)) == ""
        assert judge.sample(RELOADS, status="failure") == 1
        publish_other(issuer)
        await asyncio.sleep(20)
        assert await name(judge, issuer.token(iss=OTHER)) == "jane"
        assert await name(judge, issuer.token()) == ""


async def test_unavailable_old_issuer_does_not_block_new_file(issuer: Issuer, judging: Judging) -> None:
    issuer.answers[DISCOVERY] = FetchError("down")
    publish_other(issuer)
    async with judging() as judge:
        judge.file.write_text(document(rules(), rules(issuer__url=OTHER)))
        await asyncio.sleep(10)
        assert await name(judge, issuer.token(iss=OTHER)) == "jane"
        del issuer.answers[DISCOVERY]
        await asyncio.sleep(11)
        assert await name(judge, issuer.token()) == "jane"


async def test_removed_issuer_is_not_polled_for_keys(issuer: Issuer, judging: Judging) -> None:
    async with judging(document(rules(), rules(issuer__url=OTHER))) as judge:
        judge.file.write_text(document(rules()))
        await asyncio.sleep(70)
        asked = issuer.count(OTHER_DISCOVERY)
        assert asked
        await asyncio.sleep(600)
        assert issuer.count(OTHER_DISCOVERY) == asked
        info = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info"
        assert judge.sample(info) == 1


async def test_issuer_removed_and_added_again_is_polled(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        judge.file.write_text(document())
        await asyncio.sleep(10)
        assert await name(judge, issuer.token()) == ""
        judge.file.write_text(document(rules()))
        await asyncio.sleep(10)
        assert await name(judge, issuer.token()) == "jane"
        await asyncio.sleep(100)
        issuer.keys = {"two": RSA_KEYS[1]}
        assert await name(judge, issuer.token(RSA_KEYS[1], kid="two")) == "jane"


async def test_changed_ca_of_issuer_opens_new_connection(issuer: Issuer, judging: Judging) -> None:
    async with judging() as judge:
        place = f"{URL}/discovery"
        issuer.answers[place] = {"issuer": URL, "jwks_uri": KEYS}
        judge.file.write_text(document(rules(issuer__discoveryURL=place)))
        await asyncio.sleep(10)
        assert issuer.count(place) == 1
        assert await name(judge, issuer.token()) == "jane"


async def test_file_may_start_without_issuers(issuer: Issuer, judging: Judging) -> None:
    async with judging(document()) as judge:
        assert await name(judge, issuer.token()) == ""
        judge.file.write_text(document(rules()))
        await asyncio.sleep(10)
        assert await name(judge, issuer.token()) == "jane"
