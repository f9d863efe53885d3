"""YAML as the server reads and writes it: the part of the language that JSON has too (it is read by `yaml_reader`)."""

import re
from collections.abc import Iterator
from typing import Any

import orjson
import yaml

from apiserver_stub.encode.json import encode
from apiserver_stub.encode.list_document import ListDocument
from apiserver_stub.encode.yaml_reader import is_word, read
from controller_manager.api.errors import BadRequest

_LONGEST_KEY = 500  # characters of a key that readers look ahead for its colon; a thousand bytes, in the standard
_PLAIN = re.compile(r"[A-Za-z_/][-A-Za-z0-9_./@+]*(?:[ :][-A-Za-z0-9_./@+]+)*", re.ASCII)
_MORE_WORDS = frozenset({"y", "Y", "n", "N"})  # to some readers
_LINES = re.compile(r"[ -~\u00a1-\u2027\u202a-\ud7ff\n]+")
_UNSEEN = re.compile(r"[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")  # JSON may have them as they are, YAML may not


def load(data: bytes) -> tuple[Any, tuple[str, ...]]:
    """Decode `data`; returns the value and the paths of duplicate keys. Raises `BadRequest`."""
    try:
        return read(data.decode())
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise BadRequest(f"the body is not valid YAML: {' '.join(str(error).split())}") from None


def dump(data: bytes) -> bytes:
    """Return JSON bytes as YAML, in block style and the same order."""
    return _write(orjson.loads(data)).encode()


def pieces(document: ListDocument) -> Iterator[bytes]:
    """Yield a list as one document, piece by piece: an object takes many times as long as its JSON."""
    empty = dump(encode({**document.head, document.array: []}))
    yield empty if not document.objects else empty.removesuffix(b" []\n") + b"\n"
    for element in document.elements():
        yield dump(b"[%b]" % element)


def _write(value: Any) -> str:
    """Return a JSON value in block style, in about the time that JSON takes to read: what looks like anything but a
    text is quoted.
    """
    lines: list[str] = []
    if not value or not isinstance(value, dict | list):
        return f"{_scalar(value, '')}\n"
    _block(value, "", lines)
    return "\n".join((*lines, ""))


def _block(value: Any, indent: str, lines: list[str]) -> None:
    """Add the lines of an object or array that is not empty."""
    if isinstance(value, list):
        for item in value:
            _item(item, indent, lines)
        return
    for key, child in value.items():
        if len(key) > _LONGEST_KEY:
            lines.append(f"{indent}? {_quoted(key)}")
            name = f"{indent}:"
        else:
            name = f"{indent}{_key(key)}:"
        if child and (child.__class__ is dict or child.__class__ is list):
            lines.append(name)
            _block(child, indent if child.__class__ is list else f"{indent}  ", lines)
        else:
            lines.append(f"{name} {_scalar(child, f'{indent}  ')}")


def _item(item: Any, indent: str, lines: list[str]) -> None:
    inner = f"{indent}  "
    if not item or not (item.__class__ is dict or item.__class__ is list):
        lines.append(f"{indent}- {_scalar(item, inner)}")
        return
    first = len(lines)
    _block(item, inner, lines)
    lines[first] = f"{indent}- {lines[first][len(inner) :]}"


def _key(key: str) -> str:
    return key if _is_plain(key) else _quoted(key)


def _scalar(value: Any, indent: str) -> str:
    if value.__class__ is float:
        return _float(value)
    if value.__class__ is not str:
        return orjson.dumps(value).decode()
    if _is_plain(value):
        return str(value)
    if "\n" in value and value[0] not in " \n" and _LINES.fullmatch(value):
        return _lines(value, indent)
    return _quoted(value)


def _float(value: float) -> str:
    """Return a number with a point, without which some readers see no float."""
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and not is_word(text) and text not in _MORE_WORDS


def _lines(text: str, indent: str) -> str:
    """Return a text line by line; the mark says what becomes of its end."""
    bare = text.rstrip("\n")
    mark = {0: "|-", 1: "|"}.get(len(text) - len(bare), "|+")
    ends = text[: -1 if mark == "|+" else None] if mark == "|+" else bare
    return "\n".join((mark, *(f"{indent}{line}" if line else "" for line in ends.split("\n"))))


def _quoted(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", orjson.dumps(text).decode())
