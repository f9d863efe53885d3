"""Bearer tokens that a WebSocket offers as a subprotocol (upstream: the protocol authenticator of 1.36)."""

import base64

import pytest

from controller_manager.common.api.errors import Unauthorized
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import User, WebSocketTokenAuthenticator, without_token

PREFIX = "base64url.bearer.authorization.k8s.io."
OFFER = {"connection": "keep-alive, Upgrade", "upgrade": "WebSocket"}


class Tokens:
    async def authenticate_token(self, token: str) -> User | None:
        return User("jane") if token == "good~~~>" else None


def offered(token: str) -> str:
    return PREFIX + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def request_of(protocols: str, offer: dict[str, str] | None = None) -> Request:
    return Request("GET", "/", headers={**(OFFER if offer is None else offer), "sec-websocket-protocol": protocols})


GOOD = offered("good~~~>")


@pytest.mark.parametrize("protocols", [f"{GOOD}, v4.channel.k8s.io", f"v4.channel.k8s.io ,{GOOD}", f"a,{GOOD},b"])
async def test_token_with_another_protocol_authenticates(protocols: str) -> None:
    assert await WebSocketTokenAuthenticator(Tokens()).authenticate(request_of(protocols)) == User("jane")


NOTHING = {
    "no websocket": request_of(f"{GOOD}, v4", {}),
    "an offer without the upgrade of the connection": request_of(f"{GOOD}, v4", {"upgrade": "websocket"}),
    "another protocol": request_of(f"{GOOD}, v4", {"connection": "upgrade", "upgrade": "spdy/3.1"}),
    "no token": request_of("v4, v5"),
    "an empty token": request_of(f"{PREFIX}, v5"),
    "a prefix in capitals": request_of(f"{GOOD.upper()}, v5"),
    "nothing": Request("GET", "/", headers=OFFER),
}


@pytest.mark.parametrize("case", NOTHING)
async def test_offers_without_token_are_not_authenticated(case: str) -> None:
    assert await WebSocketTokenAuthenticator(Tokens()).authenticate(NOTHING[case]) is None


REFUSED = {
    "a token alone": GOOD,
    "two tokens": f"{GOOD}, {GOOD}, v4",
    "a token and an empty one": f"{GOOD}, {PREFIX}, v4",
    "an unknown token": f"{offered('forged')}, v4",
    "padding": f"{PREFIX}{base64.urlsafe_b64encode(b'good~~~').decode()}==, v4",
    "the standard base64 alphabet": f"{PREFIX}{base64.b64encode(b'good~~~>').decode().rstrip('=')}, v4",
    "one letter too many": f"{GOOD}AA, v4",
    "no base64": f"{PREFIX}*, v4",
    "no text": f"{PREFIX}{base64.urlsafe_b64encode(bytes([255, 254, 253])).decode()}, v4",
    "a space within": f"{GOOD[:-2]} {GOOD[-2:]}, v4",
}


@pytest.mark.parametrize("case", REFUSED)
async def test_invalid_token_offers_are_unauthorized(case: str) -> None:
    with pytest.raises(Unauthorized):
        await WebSocketTokenAuthenticator(Tokens()).authenticate(request_of(REFUSED[case]))


def test_tokens_are_removed_from_forwarded_protocols() -> None:
    assert without_token(f"v4,{GOOD} , v5") == "v4, v5"
    assert without_token(GOOD) == ""
