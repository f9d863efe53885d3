"""Read a large range of keys in pages at one revision."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from controller_manager.common.api.tree import Tree

_FIRST, _BYTES = 500, 8 << 20  # keys of the first page; target bytes of the following pages

Ask = Callable[[Tree], Awaitable[Tree]]
"""Returns the response to a range request."""


async def pages(
    ask: Ask, bounds: tuple[bytes, bytes], revision: int | None
) -> AsyncIterator[tuple[int, Sequence[Tree]]]:
    """Yield the keys in a range, page by page, at a revision (None: newest). Each page has that revision."""
    (start, end), limit = bounds, _FIRST
    while True:
        page: Tree = {"key": start, "range_end": end, "limit": limit}
        if revision is not None:
            page["revision"] = revision
        answer = await ask(page)
        revision = revision or answer["header"]["revision"]
        kvs: Sequence[Tree] = answer.get("kvs", ())
        yield revision, kvs
        if not answer.get("more"):
            return
        start = kvs[-1]["key"] + b"\0"
        size = sum(len(kv.get("value", b"")) for kv in kvs) or 1
        limit = max(1, min(10 * _FIRST, _BYTES * len(kvs) // size))
