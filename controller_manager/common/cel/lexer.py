"""The lexer of CEL, and values of literals."""

from __future__ import annotations

import re
from typing import NamedTuple

EOF = "<EOF>"

_STRING = (
    r'[rR](?:"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"[^"\n\r]*"|\'[^\'\n\r]*\')'
    r'|"""(?:{e}|[^\\])*?"""|\'\'\'(?:{e}|[^\\])*?\'\'\''
    r'|"(?:{e}|[^\\"\n\r])*"|\'(?:{e}|[^\\\'\n\r])*\''
).replace("{e}", r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7][0-7])")
_TOKEN = re.compile(
    r"(?P<hidden>[\t \r\n\f]+|//[^\n]*)"
    rf"|(?P<BYTES>[bB](?:{_STRING}))|(?P<STRING>{_STRING})"
    r"|(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<NUM_FLOAT>[0-9]+(?:\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])"
    r"|(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)"
    r"|(?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])"
    r"|(?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/ ]+`)"
)
_KEYWORDS = frozenset({"in", "true", "false", "null"})


class Token(NamedTuple):
    """A token: the kind of operators and keywords is their text, others are named as in the grammar."""

    kind: str
    text: str
    offset: int


def tokenize(text: str, offset: int = 0) -> tuple[list[Token], int]:
    """Return the tokens from an offset on, and the position of the first invalid character (or the end of the text)."""
    tokens: list[Token] = []
    for found in iter(_TOKEN.scanner(text, offset).match, None):  # type: ignore[attr-defined]
        kind = found.lastgroup
        begin, offset = found.span()
        if kind == "hidden":
            continue
        word = found.group()
        if kind == "operator" or (kind == "IDENTIFIER" and word in _KEYWORDS):
            kind = word
        tokens.append(Token(kind, word, begin))
    return tokens, offset


class LiteralError(ValueError):
    """A literal is invalid."""


def unquoted(text: str) -> str:
    """Return the value of a string literal. Raises LiteralError."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body
    return _ESCAPE.sub(_character, body)


def unquoted_bytes(text: str) -> bytes:
    """Return the value of a bytes literal, given its text after the `b`. Raises LiteralError."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body.encode("utf-8", "surrogatepass")
    value, end = bytearray(), 0
    for found in _ESCAPE.finditer(body):
        value += body[end : found.start()].encode("utf-8", "surrogatepass")
        value.append(_byte(found))
        end = found.end()
    return bytes(value + body[end:].encode("utf-8", "surrogatepass"))


_ESCAPE = re.compile(r"\\(?:[xX](?P<hex>..)|u(?P<u4>.{4})|U(?P<u8>.{8})|(?P<octal>[0-3]..)|(?P<char>.))", re.DOTALL)
_CHARACTERS = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11} | {c: ord(c) for c in "\"'\\?`"}


def _body(text: str) -> tuple[str, bool]:
    """Return the text between the quotes with normalized line ends, and whether it is raw."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[width:-width], raw


def _character(found: re.Match[str]) -> str:
    digits = found["hex"] or found["u4"] or found["u8"]
    if digits:
        code = int(digits, 16)
    elif found["octal"]:
        code = int(found["octal"], 8)
    else:
        code = _CHARACTERS[found["char"]]
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise LiteralError("invalid unicode code point")
    return chr(code)


def _byte(found: re.Match[str]) -> int:
    if found["u4"] or found["u8"]:
        raise LiteralError("unable to unescape string")
    if found["hex"]:
        return int(found["hex"], 16)
    return int(found["octal"], 8) if found["octal"] else _CHARACTERS[found["char"]]
