"""Bearer tokens: the chain of authenticators, the token file, and malformed headers."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from apiserver_stub.authn.tokens import (
    Recognized,
    StaticTokens,
    TokenAuthenticatorChain,
    TokenRefused,
    parse_tokens,
    read_token_file,
)
from controller_manager.common.api.errors import Unauthorized
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.authentication import BearerTokenAuthenticator, User, bearer_token


def request(authorization: str) -> Request:
    return Request("GET", "/version", headers={"authorization": authorization})


def static(users: dict[str, User]) -> BearerTokenAuthenticator:
    return BearerTokenAuthenticator(TokenAuthenticatorChain([StaticTokens(users, ["us"]).find], ["us"]))


def test_token_line_has_user_uid_and_groups() -> None:
    users = parse_tokens(['s3cret,jane,42,"dev,ops"', "", " other , joe , 7 "], "tokens.csv")
    assert users == {"s3cret": User("jane", "42", ("dev", "ops")), "other": User("joe", "7")}


@pytest.mark.parametrize("line", ["only", "token,user", ",jane,1", "token,,1"])
def test_malformed_line_is_reported(line: str) -> None:
    with pytest.raises(ValueError, match=r"tokens\.csv, line 2: expected"):
        parse_tokens(["a,b,c", line], "tokens.csv")


def test_duplicate_token_is_rejected() -> None:
    with pytest.raises(ValueError, match="line 2: the token was given before"):
        parse_tokens(["a,b,c", "a,d,e"], "tokens.csv")


async def test_token_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('t,jane,1,"dev"\n')
    found = await static(read_token_file(file)).authenticate(request("Bearer t"))
    assert found == User("jane", "1", ("dev", "system:authenticated"))


async def test_static_token_is_valid_for_server_audiences_only() -> None:
    find = StaticTokens({"token": User("jane")}, ["us", "our other name"]).find
    jane = User("jane", groups=("system:authenticated",))
    assert await find("token", ["them", "us"]) == Recognized(jane, ("us",))
    assert await find("token", ["them"]) is None


async def refuse(token: str, _audiences: Sequence[str]) -> Recognized | None:
    if token == "mine":
        raise TokenRefused("it is too old")
    return None


async def test_rejection_falls_through_to_next_authenticator() -> None:
    tokens = TokenAuthenticatorChain([refuse, StaticTokens({"mine": User("jane")}, ["us"]).find], ["us"])
    found = await tokens.authenticate_token("mine")
    assert found is not None
    assert found.name == "jane"


async def test_token_error_is_shown_to_reviewers_only() -> None:
    tokens = TokenAuthenticatorChain([refuse], ["us"])
    assert await tokens.authenticate_token("mine") is None
    with pytest.raises(TokenRefused, match="too old"):
        await tokens.find("mine", ())
    assert await tokens.find("another", ()) is None


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Basic token", "token"])
async def test_other_authorization_header_is_not_a_token(authorization: str) -> None:
    assert await static({"token": User("jane")}).authenticate(request(authorization)) is None


@pytest.mark.parametrize(
    "authorization", ["Bearer forged", "Bearer tok", "Bearer token2", "Bearer token more", "Bearer \udcff"]
)
async def test_unknown_token_is_rejected(authorization: str) -> None:
    with pytest.raises(Unauthorized):
        await static({"token": User("jane")}).authenticate(request(authorization))


@pytest.mark.parametrize("authorization", ["Bearer token", "bearer token", "BEARER token "])
def test_bearer_scheme_is_case_insensitive(authorization: str) -> None:
    assert bearer_token(request(authorization)) == "token"
