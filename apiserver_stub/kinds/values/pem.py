"""Parse PEM blocks (RFC 7468) as Go does. Text between blocks is ignored."""

from binascii import Error, a2b_base64
from collections.abc import Iterator
from typing import NamedTuple

_BEGIN, _END, _DASHES = b"-----BEGIN ", b"-----END ", b"-----"
_BLANK = b" \t\r\n"


class Block(NamedTuple):
    """A block: its type, such as `CERTIFICATE`, whether it has headers, and its content."""

    type: str
    has_headers: bool
    content: bytes


def blocks(pem: bytes) -> Iterator[Block]:
    """Yield the readable blocks. Each byte is examined a bounded number of times."""
    after = 0
    while (end := pem.find(b"\n" + _END, after)) >= 0:
        begin = pem.rfind(_BEGIN, after, end)
        line_end = pem.find(b"\n", end + 1)
        last = pem[end + 1 : line_end if line_end >= 0 else len(pem)]
        if begin == 0 or (begin > 0 and pem[begin - 1 : begin] == b"\n"):
            head, _, body = pem[begin:end].partition(b"\n")
            kind = head.rstrip(_BLANK).removeprefix(_BEGIN).removesuffix(_DASHES)
            content = _content(body)
            if content is not None and last.rstrip(_BLANK) == _END + kind + _DASHES:
                yield Block(kind.decode(errors="replace"), b":" in body, content)
        after = end + 1


def _content(body: bytes) -> bytes | None:
    """Return the decoded content of a block after its headers. None if it is not base64."""
    headers_end = body.find(b"\n", body.rfind(b":")) if b":" in body else -1
    try:
        return a2b_base64(body[headers_end + 1 :].translate(None, _BLANK), strict_mode=True)
    except Error:
        return None
