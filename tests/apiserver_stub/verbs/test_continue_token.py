"""Continue tokens: round trips, and rejected texts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.verbs.list import ContinueToken, read_token, write_token
from controller_manager.common.api.errors import BadRequest

keys = st.text(st.characters(codec="utf-8"), max_size=30)


@settings(max_examples=100)
@given(st.integers(0, 2**63 - 1), st.text("ab/", max_size=3), keys)
def test_token_round_trips(revision: int, prefix: str, rest: str) -> None:
    token = ContinueToken(revision, prefix + rest)
    text = write_token(token)
    assert read_token(text, prefix) == token
    assert text.isascii()
    assert not set(text) & set("+/=&? ")


@settings(max_examples=200)
@given(st.one_of(st.text(max_size=40), st.text("ABCabc019-_=", max_size=40)))
def test_malformed_token_is_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequest):
        read_token(text, "default/")


def test_token_of_another_namespace_is_a_bad_request() -> None:
    with pytest.raises(BadRequest):
        read_token(write_token(ContinueToken(5, "other/a")), "default/")
    for revision in (-1, 1.5, "5"):
        with pytest.raises(BadRequest):
            read_token(write_token(ContinueToken(revision, "default/a")), "default/")
