"""Rewriting of links in pages, for any split into chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.apis.kubelet.links import LinkRewriter, Links

LINKS = Links("/p", "10.0.0.1:80", "front:1")


def rewritten(page: bytes, size: int = 1 << 20) -> bytes:
    rewriter = LinkRewriter(LINKS)
    found = [rewriter.feed(page[start : start + size]) for start in range(0, len(page), size)]
    return b"".join([*found, rewriter.finish()])


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<a href="/x">', '<a href="/p/x">'),
        ("<A class=y HREF=/x id=z>", '<A class=y HREF="/p/x" id=z>'),
        ("<img src='/x' alt='/y'/>", "<img src=\"/p/x\" alt='/y'/>"),
        ('<a href="/x?a=1&amp;b=2#c">', '<a href="/p/x?a=1&amp;b=2#c">'),
        ('<a href="http://10.0.0.1:80/x/">', '<a href="/p/x/">'),
        ('<a href="http://front:1/x">', '<a href="http://front:1/p/x">'),
        ('<a href="/p/x">', '<a href="/p/x">'),
        ('<a href="x"><a href="//other/x"><a href="#x"><a href="http://[/x">', None),
        ('<div href="/x">', None),
        ('<!-- <a href="/x"> --><a href="/x">', '<!-- <a href="/x"> --><a href="/p/x">'),
        (
            '<script src="/x">if (a < b) "<a href=\'/x\'>"</script><a href="/y">',
            '<script src="/p/x">if (a < b) "<a href=\'/x\'>"</script><a href="/p/y">',
        ),
        (
            'a < b <3 </p><!DOCTYPE html><a title=">" href="/x">',
            'a < b <3 </p><!DOCTYPE html><a title=">" href="/p/x">',
        ),
        ('<a href="/x', None),
        ("<script>x", None),
        ("", None),
    ],
)
def test_links_are_rewritten(page: str, found: str | None) -> None:
    assert rewritten(page.encode()).decode() == (page if found is None else found)


PARTS = st.sampled_from([
    '<a href="/x">', "<img src=/y>", "<!--", "-->", "<script>", "</script>", "text", "<", ">", '"', "'", "<b", " x",
    "</", "<title>", "</title>", "<!", "é",
])  # fmt: skip


@given(st.lists(PARTS, max_size=20), st.integers(1, 9))
def test_rewriting_does_not_depend_on_chunks(parts: list[str], size: int) -> None:
    page = "".join(parts).encode()
    assert rewritten(page, size) == rewritten(page)


@given(st.binary(max_size=200))
def test_text_without_links_is_unchanged(data: bytes) -> None:
    assert rewritten(data, 7) == data or b"=" in data


def test_endless_tag_is_passed_through() -> None:
    rewriter = LinkRewriter(LINKS)
    found = sum(len(rewriter.feed(b"<a " + b"x" * 4096)) for _ in range(100))
    assert found > 300_000
