"""Distributed claims: groups from other issuers (OpenID Connect Core 1.0, section 5.6.2)."""

from typing import Any

import pytest

from apiserver_stub.authn.jwt.fetcher import FetchError
from tests.apiserver_stub.authn.jwt.conftest import RunAuthenticators, document, rules
from tests.apiserver_stub.authn.jwt.issuer import RSA_KEYS, Issuer, jwk

pytestmark = pytest.mark.virtual
SOURCE = "https://groups.example/of"
SECOND_ISSUER = "https://groups.example"
WITH_GROUPS = document(rules(claimMappings__groups={"claim": "groups", "prefix": "g:"}))


def pointing(**source: Any) -> dict[str, Any]:
    """Claims with a distributed source of the groups."""
    return {"_claim_names": {"groups": "src"}, "_claim_sources": {"src": {"endpoint": SOURCE, **source}}}


def source_token(issuer: Issuer, **claims: Any) -> bytes:
    """The token that the source returns."""
    return issuer.token(RSA_KEYS[1], kid="teller", **{"iss": SECOND_ISSUER, "groups": ["a", "b"], **claims}).encode()


@pytest.fixture(autouse=True)
def second_issuer(issuer: Issuer) -> None:
    issuer.answers[f"{SECOND_ISSUER}/.well-known/openid-configuration"] = {
        "issuer": SECOND_ISSUER,
        "jwks_uri": f"{SECOND_ISSUER}/keys",
    }
    issuer.answers[f"{SECOND_ISSUER}/keys"] = {"keys": [jwk(RSA_KEYS[1], "teller")]}


async def test_groups_are_fetched_from_the_endpoint_in_the_token(
    issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    issuer.answers[SOURCE] = lambda: source_token(issuer)
    async with run_authenticators(WITH_GROUPS) as authn:
        user = await authn.user(issuer.token(**pointing(access_token="for the source")))
        assert user is not None, authn.why
        assert user.groups == ("g:a", "g:b")
        assert (SOURCE, "for the source") in issuer.asked


async def test_groups_in_the_token_need_no_fetch(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators(WITH_GROUPS) as authn:
        user = await authn.user(issuer.token(groups=["own"], **pointing()))
        assert user is not None
        assert user.groups == ("g:own",)
        assert issuer.count(SOURCE) == 0


@pytest.mark.parametrize(
    "text",
    [document(rules()), document(rules(claimMappings__groups={"expression": "claims.?groups.orValue([])"}))],
    ids=["no groups", "an expression"],
)
async def test_no_fetch_if_groups_are_not_a_claim(
    issuer: Issuer, run_authenticators: RunAuthenticators, text: str
) -> None:
    async with run_authenticators(text) as authn:
        user = await authn.user(issuer.token(**pointing()))
        assert user is not None
        assert user.groups == ()
        assert issuer.count(SOURCE) == 0


async def test_only_distributed_groups_claim_is_fetched(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators(WITH_GROUPS) as authn:
        other = {"_claim_names": {"roles": "src"}, "_claim_sources": {"src": {"endpoint": SOURCE}}}
        aggregated = {"_claim_names": {"groups": "src"}, "_claim_sources": {"src": {"JWT": "x.y.z"}}}
        for claims in (other, aggregated):
            user = await authn.user(issuer.token(**claims))
            assert user is not None
            assert user.groups == ()
        assert issuer.count(SOURCE) == 0


REFUSED = {
    "nothing": lambda _: FetchError("connection refused"),
    "no token": lambda _: b"<html>",
    "no UTF-8": lambda _: b"\xff.\xff.\xff",
    "expired": lambda i: source_token(i, exp=1),
    "another audience": lambda i: source_token(i, aud="other"),
    "no groups": lambda i: source_token(i, groups=None),
    "groups that are numbers": lambda i: source_token(i, groups=[1]),
    "the key of another": lambda i: i.token(RSA_KEYS[0], kid="teller", iss=SECOND_ISSUER, groups=["a"]).encode(),
    "an issuer that is not found": lambda i: source_token(i, iss="https://nowhere.example"),
    "no algorithm": lambda i: source_token(i).replace(source_token(i).split(b".")[0], b"eyJhbGciOiJub25lIn0"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_token_with_unavailable_groups_is_rejected(
    what: str, issuer: Issuer, run_authenticators: RunAuthenticators
) -> None:
    issuer.answers[SOURCE] = lambda: REFUSED[what](issuer)
    async with run_authenticators(WITH_GROUPS) as authn:
        assert await authn.user(issuer.token(**pointing())) is None
        assert authn.why


async def test_at_most_16_claim_issuers_are_used(issuer: Issuer, run_authenticators: RunAuthenticators) -> None:
    async with run_authenticators(WITH_GROUPS) as authn:
        for number in range(20):
            issuer.answers[SOURCE] = source_token(issuer, iss=f"https://evil{number}.example")
            assert await authn.user(issuer.token(**pointing())) is None
        asked = {url for url, _ in issuer.asked if "evil" in url}
        assert len(asked) == 16
        assert "too many" in authn.why
