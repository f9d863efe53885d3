"""Rewrites links in proxied HTML so that they lead through the proxy again (HTML, sections 4 and 13.2). Pure, except
for streaming a body.
"""

import html
import posixpath
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from controller_manager.common.api.wire import Response, Upgrade
from controller_manager.common.transport.transport import TransportError, close_body

# The link attributes by element.
_LINKS = {
    "a": {"href"}, "applet": {"codebase"}, "area": {"href"}, "audio": {"src"}, "base": {"href"},
    "blockquote": {"cite"}, "body": {"background"}, "button": {"formaction"}, "command": {"icon"}, "del": {"cite"},
    "embed": {"src"}, "form": {"action"}, "frame": {"longdesc", "src"}, "head": {"profile"}, "html": {"manifest"},
    "iframe": {"longdesc", "src"}, "img": {"longdesc", "src", "usemap"}, "input": {"src", "usemap", "formaction"},
    "ins": {"cite"}, "link": {"href"}, "object": {"classid", "codebase", "data", "usemap"}, "q": {"cite"},
    "script": {"src"}, "source": {"src"}, "video": {"poster", "src"},
}  # fmt: skip
_RAW = ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")  # contain no elements
_TAG = re.compile(rb"""<([a-zA-Z][^\s/>]*+)((?:[^"'>]++|"[^"]*+"|'[^']*+')*+)>""")
_ATTRIBUTE = re.compile(r"""([^\s/>=]+)(\s*=\s*)("[^"]*"|'[^']*'|[^\s"'>]+)""")
_LONGEST_TAG = 64 * 1024  # bytes; a longer tag is not rewritten
_PIECE = 64 * 1024


class Links(NamedTuple):
    """Rules for links: links to the requested `source` or `host`, and links without a host, get the `prefix` of the
    proxy.
    """

    prefix: str
    source: str
    host: str

    def rewritten(self, link: str) -> str:
        """Return the rewritten link; a link to another host, or an invalid one, is returned unchanged."""
        try:
            parts = urlsplit(link)
        except ValueError:
            return link
        if (parts.netloc and parts.netloc not in (self.source, self.host)) or not parts.path.startswith("/"):
            return link
        if parts.netloc != self.host:
            parts = parts._replace(scheme="", netloc="")
        if not parts.path.startswith(self.prefix):
            path = posixpath.normpath(f"{self.prefix}/{parts.path}".replace("//", "/"))
            parts = parts._replace(path=f"{path}/" if parts.path.endswith("/") and path != "/" else path)
        return urlunsplit(parts)


class LinkRewriter:
    """Rewrites the links of a page that arrives in pieces."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._held = b""
        self._raw = b""  # the end tag of an open raw element, or the end of a comment

    def feed(self, data: bytes) -> bytes:
        """Return the rewritten part of the page so far."""
        self._held += data
        return b"".join(self._parts(is_last=False))

    def finish(self) -> bytes:
        """Return the rest of the page."""
        return b"".join(self._parts(is_last=True))

    def _parts(self, *, is_last: bool) -> Iterator[bytes]:
        while self._held:
            if self._raw:
                yield self._taken(self._raw_end())
                if not self._raw:
                    continue
                if is_last:
                    yield self._taken(len(self._held))
                return
            yield self._taken(self._text_end())
            if self._held.startswith(b"<!--"):
                self._raw = b"-->"
                yield self._taken(4)
            elif found := _TAG.match(self._held):
                yield self._tag(found)
            elif self._held and (is_last or len(self._held) > _LONGEST_TAG or self._is_text()):
                yield self._taken(1)
            else:
                return

    def _taken(self, size: int) -> bytes:
        found, self._held = self._held[:size], self._held[size:]
        return found

    def _text_end(self) -> int:
        end = self._held.find(b"<")
        return len(self._held) if end < 0 else end

    def _raw_end(self) -> int:
        """Return the length of raw content, without what may be the beginning of its end tag."""
        end = self._held.lower().find(self._raw)
        if end >= 0:
            end += len(self._raw)
            self._raw = b""
            return end
        return max(len(self._held) - len(self._raw) + 1, 0)

    def _is_text(self) -> bool:
        """Return whether the text only looks like a tag."""
        return len(self._held) > 1 and not (self._held[1:2].isalpha() or b"<!--".startswith(self._held[:4]))

    def _tag(self, found: re.Match[bytes]) -> bytes:
        text = self._taken(found.end())
        name = found[1].decode("utf-8", "replace").lower()
        if name in _RAW and not text.endswith(b"/>"):
            self._raw = f"</{name}".encode()
        wanted = _LINKS.get(name)
        if not wanted:
            return text
        attributes = found[2].decode("utf-8", "surrogateescape")
        changed = _ATTRIBUTE.sub(lambda each: self._attribute(each, wanted), attributes)
        return b"<" + found[1] + changed.encode("utf-8", "surrogateescape") + b">"

    def _attribute(self, found: re.Match[str], wanted: set[str]) -> str:
        if found[1].lower() not in wanted:
            return found[0]
        value = found[3]
        is_quoted = value[0] in "\"'"
        link = html.unescape(value[1:-1] if is_quoted else value)
        to = self._links.rewritten(link)
        return found[0] if to == link else f'{found[1]}{found[2]}"{html.escape(to)}"'


async def rewritten_body(response: Response, links: Links) -> AsyncIterator[bytes]:
    """Yield a page with rewritten links in its original compression. A page in an unknown encoding is unchanged."""
    encoding = response.headers.get("content-encoding", "")
    try:
        if encoding not in _WINDOWS:
            async for piece in _pieces(response):
                yield piece
            return
        rewriter, packing = LinkRewriter(links), _Packing(encoding)
        async for piece in _pieces(response):
            for plain in packing.unpacked(piece):
                if found := packing.packed(rewriter.feed(plain)):
                    yield found
        yield packing.packed(rewriter.finish(), is_last=True)
    finally:
        await close_body(response)


async def _pieces(response: Response) -> AsyncIterator[bytes]:
    body = response.body
    assert not isinstance(body, Upgrade)
    if isinstance(body, bytes):
        yield body
        return
    async for piece in body:
        yield piece


_WINDOWS = {"": 0, "gzip": 16 + zlib.MAX_WBITS, "deflate": -zlib.MAX_WBITS}


class _Packing:
    """Decompresses and compresses content, 64 KiB at a time."""

    def __init__(self, encoding: str) -> None:
        window = _WINDOWS[encoding]
        self._in = zlib.decompressobj(window) if window else None
        self._out = zlib.compressobj(wbits=window) if window else None

    def unpacked(self, data: bytes) -> Iterator[bytes]:
        if self._in is None:
            yield data
            return
        found = b"." * _PIECE
        while data or len(found) == _PIECE:
            try:
                found = self._in.decompress(data, _PIECE)
            except zlib.error as error:
                raise TransportError(f"the answer cannot be unpacked: {error}") from error
            yield found
            data = self._in.unconsumed_tail

    def packed(self, data: bytes, *, is_last: bool = False) -> bytes:
        if self._out is None:
            return data
        return self._out.compress(data) + (self._out.flush() if is_last else b"")
