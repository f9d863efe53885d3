"""Targets, headers and status lines as pure functions."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.serving import http


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/api/v1", "/api/v1", ()),
        ("/api?", "/api", ()),
        ("/a%20b?x=1&y&x=%2F+z", "/a b", (("x", "1"), ("y", ""), ("x", "/ z"))),
        ("/pods/a%2Fb%2fc", "/pods/a%2Fb%2Fc", ()),
        ("/pods/a%252Fb", "/pods/a%2Fb", ()),
        ("/caf%C3%A9", "/café", ()),
        ("/bad%ff%zz", "/bad\ufffd%zz", ()),
        ("/a?b=c?d", "/a", (("b", "c?d"),)),
    ],
)
def test_target_is_split_and_decoded(target, path, query):
    assert http.parse_target(target) == (path, query)


@given(st.text(st.sampled_from("ab/%2Ff5?&=+\u00e9"), max_size=30))
def test_decoding_never_adds_a_separator(target):
    path, _ = http.parse_target(target)
    assert path.count("/") == target.partition("?")[0].count("/")


@given(st.text(st.sampled_from("ab2%+&=;?\u00e9"), max_size=30))
def test_query_is_parsed_like_a_form(query):
    assert http.parse_target(f"/a?{query}")[1] == tuple(parse_qsl(query, keep_blank_values=True))


def test_headers_are_folded_by_lower_case_name():
    items = [("Accept", "a"), ("X-One", "1"), ("accept", "b")]
    assert http.fold_headers(items) == {"accept": "a, b", "x-one": "1"}


def test_repeated_header_values_stay_separate():
    items = [("Group", "a, b"), ("X-One", "1, 2"), ("group", "c")]
    request = Request("GET", "/", headers=http.fold_headers(items), repeated=http.repeated_headers(items))
    assert request.values("group") == ("a, b", "c")
    assert request.values("x-one") == ("1, 2",)
    assert request.values("x-two") == ()


def test_subject_of_certificate_is_read():
    subject = ((("organizationName", "a"),), (("organizationName", "b"),), (("commonName", "me"),))
    assert http.certificate_of({"subject": subject}) == Certificate("me", ("a", "b"))
    assert http.certificate_of({"subject": subject[:2]}) is None
    assert http.certificate_of({}) is None
    assert http.certificate_of(None) is None


def test_uid_of_subject_must_be_unique() -> None:
    def uid_of(*values: str) -> str | None:
        pairs = tuple((("1.3.6.1.4.1.57683.2", value),) for value in values)
        found = http.certificate_of({"subject": ((("commonName", "me"),), *pairs)}, digest="ab")
        assert found is not None
        assert found.digest == "ab"
        return found.uid

    assert uid_of() == ""
    assert uid_of("7") == "7"
    assert uid_of("") is None
    assert uid_of("7", "7") is None


def test_response_head_has_date_length_and_connection():
    date = http.date_line(0)
    assert http.head(200, {"content-type": "x"}, date, http.content_length(200, 5), keep=True) == (
        b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-type: x\r\ncontent-length: 5\r\n\r\n"
    )
    assert http.head(204, {}, date, http.content_length(204, 0), keep=False) == (
        b"HTTP/1.1 204 No Content\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\nconnection: close\r\n\r\n"
    )


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,4}", fullmatch=True),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=10),
        max_size=4,
    ),
    st.booleans(),
)
def test_header_value_cannot_start_a_new_header(headers, keep):
    text = http.head(200, headers, http.date_line(0), http.CHUNKED, keep=keep)
    assert text.count(b"\r\n") == text.count(b"\n") == text.count(b"\r") == len(headers) + 4 + (not keep)
