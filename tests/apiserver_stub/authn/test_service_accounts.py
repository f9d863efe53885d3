"""Service account tokens: attacks, expiry, deletion and caching."""

import asyncio
import base64
import hmac
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from apiserver_stub.authn import service_accounts
from apiserver_stub.authn.keys import GivenKeys, own_key
from apiserver_stub.authn.service_accounts import LONGEST_TOKEN, ServiceAccountTokens, Signer, TokenMetrics
from apiserver_stub.authn.tokens import Claims, Reference, TokenRefused, TokenSubject
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.token_keys import SigningKey, VerifyingKey

ISSUER, OTHER = "https://issuer", "https://other"
KEY, STRANGER = own_key(None), own_key(None)
_PRIVATE = rsa.generate_private_key(65537, 2048)
RSA = SigningKey(_PRIVATE, VerifyingKey.of(_PRIVATE.public_key()))
Tree = dict[str, Any]


def row(storage: str, key: str, uid: str, **metadata: str) -> Row:
    return Row(storage, key, 1, json.dumps({"metadata": {"uid": uid, **metadata}}).encode())


class Store(dict[tuple[str, str], Row]):
    """Rows by resource and key."""

    def __init__(self, *rows: Row) -> None:
        super().__init__({(one.resource, one.key): one for one in rows})

    def read(self, resource: str, key: str) -> Row | None:
        return self.get((resource, key))


def make_tokens(
    *keys: SigningKey, issuers: Sequence[str] = (ISSUER,), get: Callable[[str, str], Row | None] | None = None
) -> ServiceAccountTokens:
    metrics = TokenMetrics(CollectorRegistry())
    return ServiceAccountTokens(issuers, GivenKeys([key.verifying for key in keys]), get, metrics)


def claims(now: float, *, audiences: tuple[str, ...] = (ISSUER,), issuer: str = ISSUER, **bound: Reference) -> Claims:
    return Claims(
        audiences=audiences,
        expires=int(now) + 3600,
        issued=int(now),
        issuer=issuer,
        identifier="jti",
        subject=TokenSubject(namespace="ns", account=Reference("a", "u1"), **bound),
        not_before=int(now),
        username="system:serviceaccount:ns:a",
    )


@pytest.fixture
def store() -> Store:
    return Store(row("serviceaccounts", "ns/a", "u1"))


@pytest.fixture
def tokens(store: Store) -> ServiceAccountTokens:
    return make_tokens(KEY, RSA, issuers=[ISSUER, OTHER], get=store.read)


@pytest.fixture
def token() -> str:
    return Signer(KEY).sign(claims(wall_seconds()))


async def test_token_yields_account_and_credential_id(tokens: ServiceAccountTokens, token: str) -> None:
    found = await tokens.find(token, [ISSUER, "elsewhere"])
    assert found is not None
    assert found.audiences == (ISSUER,)
    user = found.user
    assert (user.name, user.uid) == ("system:serviceaccount:ns:a", "u1")
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    assert user.extra == {"authentication.kubernetes.io/credential-id": ("JTI=jti",)}


async def test_every_issuer_and_key_is_accepted(tokens: ServiceAccountTokens) -> None:
    for issuer in (ISSUER, OTHER):
        for key in (KEY, RSA):
            assert await tokens.find(Signer(key).sign(claims(wall_seconds(), issuer=issuer)), [ISSUER])


async def test_key_is_selected_by_id_if_given(tokens: ServiceAccountTokens) -> None:
    def signed_with(name: str) -> str:
        renamed = SigningKey(RSA.private, VerifyingKey(name, "RS256", RSA.verifying.public))
        return Signer(renamed).sign(claims(wall_seconds()))

    assert await tokens.find(signed_with(""), [ISSUER])
    with pytest.raises(TokenRefused):
        await tokens.find(signed_with("another name"), [ISSUER])


async def test_bound_object_is_reported(store: Store, tokens: ServiceAccountTokens) -> None:
    store["pods", "ns/p"] = row("pods", "ns/p", "u2")
    bound = claims(wall_seconds(), pod=Reference("p", "u2"), node=Reference("n", "u3"))
    found = await tokens.find(Signer(KEY).sign(bound), [ISSUER])
    assert found is not None
    extra = {name.rpartition("/")[2]: values for name, values in found.user.extra.items()}
    assert extra == {
        "credential-id": ("JTI=jti",),
        "pod-name": ("p",),
        "pod-uid": ("u2",),
        "node-name": ("n",),
        "node-uid": ("u3",),
    }


@pytest.mark.parametrize("kind", ["pod", "secret", "node"])
async def test_bound_object_must_exist_with_same_uid(store: Store, tokens: ServiceAccountTokens, kind: str) -> None:
    token = Signer(KEY).sign(claims(wall_seconds(), **{kind: Reference("x", "u2")}))
    place = f"{kind}s", "x" if kind == "node" else "ns/x"
    with pytest.raises(TokenRefused, match="no longer exists"):
        await tokens.find(token, [ISSUER])
    store[place] = row(*place, "u2")
    assert await tokens.find(token, [ISSUER])
    store[place] = row(*place, "another")
    with pytest.raises(TokenRefused):
        await tokens.find(token, [ISSUER])


async def test_account_must_exist_with_same_uid(store: Store, tokens: ServiceAccountTokens, token: str) -> None:
    assert await tokens.find(token, [ISSUER])
    account = store.pop(("serviceaccounts", "ns/a"))
    with pytest.raises(TokenRefused, match="no longer exists"):
        await tokens.find(token, [ISSUER])
    store["serviceaccounts", "ns/a"] = row("serviceaccounts", "ns/a", "another")
    with pytest.raises(TokenRefused):
        await tokens.find(token, [ISSUER])
    store["serviceaccounts", "ns/a"] = CorruptRow("serviceaccounts", "ns/a", 1, b"", decode_error="broken", uid="u1")
    with pytest.raises(TokenRefused):
        await tokens.find(token, [ISSUER])
    store["serviceaccounts", "ns/a"] = account
    assert await tokens.find(token, [ISSUER])


async def test_deleted_account_is_valid_for_one_minute(store: Store, tokens: ServiceAccountTokens, token: str) -> None:
    for seconds, good in ((30, True), (90, False)):
        gone = format_time(datetime.fromtimestamp(wall_seconds() - seconds, UTC))
        store["serviceaccounts", "ns/a"] = row("serviceaccounts", "ns/a", "u1", deletionTimestamp=gone)
        if good:
            assert await tokens.find(token, [ISSUER])
        else:
            with pytest.raises(TokenRefused):
                await tokens.find(token, [ISSUER])


async def test_without_lookup_account_need_not_exist(token: str) -> None:
    assert await make_tokens(KEY).find(token, [ISSUER])


@pytest.mark.parametrize(("age", "why"), [(-100, "not valid yet"), (-50, ""), (3650, ""), (3670, "has expired")])
async def test_token_times_allow_one_minute_of_skew(tokens: ServiceAccountTokens, age: float, why: str) -> None:
    token = Signer(KEY).sign(claims(wall_seconds() - age))
    if not why:
        assert await tokens.find(token, [ISSUER])
        return
    with pytest.raises(TokenRefused, match=why):
        await tokens.find(token, [ISSUER])


@pytest.mark.virtual
async def test_cached_token_expires(tokens: ServiceAccountTokens, store: Store) -> None:
    token = Signer(KEY).sign(claims(wall_seconds()))
    assert await tokens.find(token, [ISSUER])
    await asyncio.sleep(3661)
    with pytest.raises(TokenRefused, match="expired"):
        await tokens.find(token, [ISSUER])


async def test_other_audience_is_rejected(tokens: ServiceAccountTokens, token: str) -> None:
    with pytest.raises(TokenRefused, match="another audience"):
        await tokens.find(token, ["elsewhere"])


def encoded(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_with_a_public_key(payload: bytes) -> str:
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    secret = RSA.verifying.public.public_bytes(*form)
    text = f"{encoded({'alg': 'HS256', 'kid': RSA.verifying.name})}.{encoded(payload)}"
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), 'sha256'))}"


FORGERIES: dict[str, Callable[[bytes], str]] = {
    "another key": lambda payload: jwt.PyJWS().encode(payload, STRANGER.private, "ES256"),
    "another key under our name": lambda payload: jwt.PyJWS().encode(
        payload, STRANGER.private, "ES256", {"kid": KEY.verifying.name}
    ),
    "no signature": lambda payload: f"{encoded({'alg': 'none', 'kid': KEY.verifying.name})}.{encoded(payload)}.",
    "a public key as a secret": signed_with_a_public_key,
    "an algorithm the key is not for": lambda payload: jwt.PyJWS().encode(payload, RSA.private, "RS512"),
    "padding of another kind": lambda payload: jwt.PyJWS().encode(payload, RSA.private, "PS256"),
    "a critical extension": lambda payload: jwt.PyJWS().encode(payload, KEY.private, "ES256", {"crit": ["x"], "x": 1}),
    "a key of its own": lambda payload: jwt.PyJWS().encode(payload, STRANGER.private, "ES256", {"jwk": {"kty": "EC"}}),
    "claims laid over a good signature": lambda payload: ".".join(
        [*Signer(KEY).sign(claims(0)).split(".")[:1], encoded(payload), Signer(KEY).sign(claims(0)).split(".")[2]]
    ),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
async def test_forged_signature_is_rejected(tokens: ServiceAccountTokens, forge: Callable[[bytes], str]) -> None:
    with pytest.raises(TokenRefused, match="signature"):
        await tokens.find(forge(msgspec.json.encode(claims(wall_seconds()))), [ISSUER])


async def test_signed_claims_of_wrong_shape_are_rejected(tokens: ServiceAccountTokens) -> None:
    token = jwt.PyJWS().encode(b'{"iss":"https://issuer","exp":99999999999}', KEY.private, "ES256")
    with pytest.raises(TokenRefused):
        await tokens.find(token, [ISSUER])


@pytest.mark.parametrize(
    "token",
    [
        "",
        "secret",
        "a.b.c",
        "..",
        "a.b.c.d",
        "\udcff.\udcff.\udcff",
        "é.é.é",
        f"{encoded(b'[' * 20000)}.{encoded({'iss': ISSUER})}.x",
        f"{encoded({'alg': 'ES256'})}.{encoded({'iss': 'https://stranger'})}.x",
        f"{encoded({'alg': 'ES256'})}.{encoded({'iss': 5})}.x",
        f"{encoded({'alg': 'ES256'})}.{encoded({'iss': ISSUER, 'x': 'x' * LONGEST_TOKEN})}.x",
    ],
)
async def test_foreign_token_is_left_to_other_authenticators(tokens: ServiceAccountTokens, token: str) -> None:
    assert await tokens.find(token, [ISSUER]) is None


@pytest.mark.parametrize("place", [0, 1])
async def test_deeply_nested_token_is_rejected(tokens: ServiceAccountTokens, place: int) -> None:
    for depth in range(800, 1020):
        parts: list[Any] = [{"alg": "ES256"}, {"iss": ISSUER}]
        head = json.dumps(parts[place])[:-1].encode()
        parts[place] = head + b', "x": ' + b"[" * depth + b"]" * depth + b"}"
        try:
            assert await tokens.find(f"{encoded(parts[0])}.{encoded(parts[1])}.AAAA", [ISSUER]) is None
        except TokenRefused:
            continue


@settings(max_examples=200)
@given(at=st.integers(0, 400), byte=st.characters(max_codepoint=255))
async def test_altered_token_is_rejected(at: int, byte: str) -> None:
    tokens = make_tokens(KEY)
    token = Signer(KEY).sign(claims(wall_seconds()))
    at %= len(token)
    changed = token[:at] + byte + token[at + 1 :]
    try:
        found = await tokens.find(changed, [ISSUER])
    except TokenRefused:
        return
    # The last character of a part has unused bits.
    assert found is None or changed == token or token[at + 1 : at + 2] in ("", ".")


async def test_cache_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_accounts, "MOST_REMEMBERED", 3)
    tokens = make_tokens(KEY)
    some = [Signer(KEY).sign(claims(wall_seconds())) for _ in range(5)]
    assert all([await tokens.find(one, [ISSUER]) for one in [*some, *some]])
    assert len(tokens._remembered) == 3
