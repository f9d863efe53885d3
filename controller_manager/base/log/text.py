"""A line as klog writes it: `I1120 18:48:04.123456   12345 site.py:42] "message" err="reason" key="value"`."""

import json
import os
from datetime import datetime
from typing import Any

from controller_manager.base.errors import words
from controller_manager.base.log.line import JSON_TYPES, Line

_SHORT = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
_SHORT |= {'"': r"\"", "\\": r"\\"}


def as_text(line: Line) -> str:
    """The line, ending in a newline. Nothing in a message or a value can begin a line of its own: what has several
    lines is indented.
    """
    when = datetime.fromtimestamp(line.time).strftime("%m%d %H:%M:%S.%f")  # noqa: DTZ006 - klog writes local time
    where = line.file.rpartition("/")[2]
    said = [line.message if line.verbatim else quote(line.message)]
    if line.error is not None:
        said.append(f"err{_value(line.error)}")
    if line.logger:
        said.append(f"logger{_value(line.logger)}")
    said += [f"{name}{_value(value)}" for name, value in line.fields.items()]
    if line.trace:
        said.append(f"stacktrace{_value(line.trace)}")
    return f"{line.severity}{when} {os.getpid():>7} {where}:{line.number}] {' '.join(said)}\n"


def quote(text: str) -> str:
    """In double quotes, as Go writes a string: one line, all of it printable."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(_SHORT.get(one) or _visible(one) for one in text)}"'


def _value(value: Any) -> str:
    """A field's value with what joins it to its name."""
    if type(value) in JSON_TYPES:
        return f"={json.dumps(value, default=words, skipkeys=True, separators=(',', ':'))}"
    text = words(value)
    if "\n" not in text or isinstance(value, BaseException):
        return f"={quote(text)}"
    lines = "".join(f"\t{''.join(map(_visible, line))}\n" for line in text.removesuffix("\n").split("\n"))
    return f"=<\n{lines} >"


def _visible(one: str) -> str:
    """A character as it is, or what stands for one that can't be seen."""
    if one.isprintable() or one == "\t":
        return one
    code = ord(one)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
