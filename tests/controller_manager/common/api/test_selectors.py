"""Label and field selectors: grammar, matching, canonical text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.selectors import FieldSelector, LabelSelector

LABELS = {"app": "web", "tier": "front", "n": "5", "example.org/part": "x"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app!=web", False),
        ("missing!=web", True),
        ("app in (web, db)", True),
        ("app notin (web,db)", False),
        ("missing notin (a)", True),
        ("app", True),
        ("!app", False),
        ("! missing", True),
        ("n>4,n<6", True),
        ("n>5", False),
        ("app>1", False),
        ("app=web,tier=back", False),
        ("app=", False),
        ("app in ()", False),
        ("missing in (,a)", False),
        (" app = web , tier = front ", True),
        ("example.org/part=x", True),
    ],
)
def test_label_selector_matches(text: str, expected: bool) -> None:
    assert LabelSelector.parse(text).matches(LABELS) is expected


@pytest.mark.parametrize(
    "text",
    ["a=b=c", "=a", "a in", "a in (b", "a in b", "a,", ",a", "a b", "a=!", "-a=b", "a=b!", "n>x", "a=_", "a in (b c)"],
)
def test_bad_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="unable to parse label selector"):
        LabelSelector.parse(text)


keys = st.from_regex(r"[a-z]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True).filter(lambda k: k not in ("in", "notin"))


@given(st.dictionaries(keys, keys), st.lists(st.tuples(keys, st.sampled_from(["=", "!="]), keys), max_size=4))
def test_canonical_selector_text_is_equivalent(labels: dict[str, str], parts: list[tuple[str, str, str]]) -> None:
    selector = LabelSelector.parse(",".join("".join(p) for p in parts))
    assert LabelSelector.parse(str(selector)) == selector
    assert selector.matches(labels) == all((labels.get(key) == value) == (sign == "=") for key, sign, value in parts)


@given(st.text(max_size=30))
def test_any_text_parses_or_raises_bad_request(text: str) -> None:
    for selector in (LabelSelector, FieldSelector):
        try:
            parsed = selector.parse(text)
        except BadRequest:
            continue
        assert selector.parse(str(parsed)) == parsed


def test_field_selector_matches() -> None:
    values = {"metadata.name": "a,b", "status.phase": "Running"}
    assert FieldSelector.parse(r"metadata.name=a\,b,status.phase!=Failed").matches(lambda p: values.get(p, ""))
    assert not FieldSelector.parse("status.phase=Failed").matches(lambda p: values.get(p, ""))
    assert FieldSelector.parse("metadata.name=x,spec.nodeName=").exact("metadata.name") == "x"
    assert FieldSelector.parse("").empty


@pytest.mark.parametrize(
    "text", ["a", "=b", " =b", "a=b=c", "a!b", r"a=\x", "a=b\\", "a=b,c=d\\", "\\", "a" * 60_000 + "\\"]
)
def test_bad_field_selectors_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        FieldSelector.parse(text)
