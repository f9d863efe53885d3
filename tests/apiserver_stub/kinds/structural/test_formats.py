"""String formats, as in kube-apiserver 1.36."""

import pytest

from apiserver_stub.kinds.structural.formats import format_of


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("/a", True),
        ("a:", True),
        ("//^", True),
        ("// ", True),
        ("user://[::1]", True),
        ("user://[v1.a]", False),
        ("mailto://:[::1", False),
        ("a+b://user:[::1>:80", False),
        ("", False),
        ("a", False),
    ],
)
def test_uri_format(text: str, right: bool) -> None:
    check = format_of("uri")
    assert check is not None
    assert check(text) is right
