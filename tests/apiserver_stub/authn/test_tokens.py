"""Bearer tokens of the token file: who they name, and what is no token."""

from pathlib import Path

import pytest

from apiserver_stub.authn.tokens import StaticTokens, bearer_token, parse_tokens, read_token_file
from apiserver_stub.call import User
from controller_manager.api.wire import Request


def request(authorization: str) -> Request:
    return Request("GET", "/version", headers={"authorization": authorization})


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
    found = read_token_file(file)(request("Bearer t"))
    assert found == User("jane", "1", ("dev", "system:authenticated"))


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer forged", "Bearer tok", "Bearer token2", "Basic token", "token", "Bearer \udcff"],
)
def test_anything_else_is_nobody(authorization: str) -> None:
    assert StaticTokens({"token": User("jane")})(request(authorization)) is None


@pytest.mark.parametrize("authorization", ["Bearer token", "bearer token", "BEARER  token "])
def test_the_scheme_is_read_in_any_case(authorization: str) -> None:
    assert bearer_token(request(authorization)) == "token"
