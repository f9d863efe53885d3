"""Bearer tokens: who knows one is asked in turn; those of the token file, and what is no token."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from apiserver_stub.authn.tokens import (
    BearerTokens,
    Recognized,
    StaticTokens,
    TokenRefused,
    bearer_token,
    parse_tokens,
    read_token_file,
)
from apiserver_stub.call import User
from controller_manager.api.wire import Request


def request(authorization: str) -> Request:
    return Request("GET", "/version", headers={"authorization": authorization})


def static(users: dict[str, User]) -> BearerTokens:
    return BearerTokens([StaticTokens(users, ["us"]).find], ["us"])


def test_a_line_names_user_uid_and_groups() -> None:
    users = parse_tokens(['s3cret,jane,42,"dev,ops"', "", " other , joe , 7 "], "tokens.csv")
    assert users == {"s3cret": User("jane", "42", ("dev", "ops")), "other": User("joe", "7")}


@pytest.mark.parametrize("line", ["only", "token,user", ",jane,1", "token,,1"])
def test_a_wrong_line_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=r"tokens\.csv, line 2: expected"):
        parse_tokens(["a,b,c", line], "tokens.csv")


def test_a_token_is_given_once() -> None:
    with pytest.raises(ValueError, match="line 2: the token was given before"):
        parse_tokens(["a,b,c", "a,d,e"], "tokens.csv")


def test_the_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('t,jane,1,"dev"\n')
    found = static(read_token_file(file))(request("Bearer t"))
    assert found == User("jane", "1", ("dev", "system:authenticated"))


def test_a_static_token_is_meant_for_this_server_alone() -> None:
    find = StaticTokens({"token": User("jane")}, ["us", "our other name"]).find
    jane = User("jane", groups=("system:authenticated",))
    assert find("token", ["them", "us"]) == Recognized(jane, ("us",))
    assert find("token", ["them"]) is None


def refuse(token: str, _audiences: Sequence[str]) -> Recognized | None:
    if token == "mine":
        raise TokenRefused("it is too old")
    return None


def test_who_does_not_accept_a_token_leaves_it_to_the_others() -> None:
    tokens = BearerTokens([refuse, StaticTokens({"mine": User("jane")}, ["us"]).find], ["us"])
    found = tokens(request("Bearer mine"))
    assert found is not None
    assert found.name == "jane"


def test_a_refusal_is_told_to_who_reviews_tokens_and_not_to_who_shows_one() -> None:
    tokens = BearerTokens([refuse], ["us"])
    assert tokens(request("Bearer mine")) is None
    with pytest.raises(TokenRefused, match="too old"):
        tokens.find("mine", ())
    assert tokens.find("another", ()) is None


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer forged", "Bearer tok", "Bearer token2", "Basic token", "token", "Bearer \udcff"],
)
def test_anything_else_is_nobody(authorization: str) -> None:
    assert static({"token": User("jane")})(request(authorization)) is None


@pytest.mark.parametrize("authorization", ["Bearer token", "bearer token", "BEARER  token "])
def test_the_scheme_is_read_in_any_case(authorization: str) -> None:
    assert bearer_token(request(authorization)) == "token"
