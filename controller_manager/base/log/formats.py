"""The forms of a line: as klog writes it, or as JSON."""

import json
import os
from datetime import datetime
from typing import Any

from controller_manager.base.errors import words
from controller_manager.base.log.line import JSON_TYPES, Line

_INFO = "I"
_NAMES = {"W": "warning", "F": "critical"}

_SHORT = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
_SHORT |= {'"': r"\"", "\\": r"\\"}


def as_text(line: Line) -> str:
    """Return `I1120 18:48:04.123456   12345 site.py:42] "message" err="reason" key="value"`, ending in a newline.

    Nothing in a message or a value can begin a line of its own: what has several
    lines is indented.
    """
    when = datetime.fromtimestamp(line.time).strftime("%m%d %H:%M:%S.%f")  # noqa: DTZ006 - klog writes local time
    where = line.file.rpartition("/")[2]
    said = [line.message if line.verbatim else quote(line.message)]
    if line.error is not None:
        said.append(f"err{_assigned(line.error)}")
    if line.logger:
        said.append(f"logger{_assigned(line.logger)}")
    said += [f"{name}{_assigned(value)}" for name, value in line.fields.items()]
    if line.trace:
        said.append(f"stacktrace{_assigned(line.trace)}")
    return f"{line.severity}{when} {os.getpid():>7} {where}:{line.number}] {' '.join(said)}\n"


def quote(text: str) -> str:
    """In double quotes, as Go writes a string: one line, all of it printable."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(_SHORT.get(one) or _visible(one) for one in text)}"'


def _assigned(value: Any) -> str:
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


def as_json(line: Line) -> str:
    """Return the line as an object, ending in a newline. `ts` is in milliseconds since the epoch; `v` is not said of
    errors, and `severity` of those lines only that `err` and `v` don't tell apart.
    """
    said: dict[str, Any] = {"ts": round(line.time * 1000, 3)}
    if line.logger:
        said["logger"] = line.logger
    said |= {"caller": f"{'/'.join(line.file.split('/')[-2:])}:{line.number}", "msg": line.message}
    if line.severity == _INFO:
        said["v"] = line.v
    elif line.severity in _NAMES:
        said["severity"] = _NAMES[line.severity]
    said.update((name, _plain(value)) for name, value in line.fields.items())
    if line.error is not None:
        said["err"] = str(line.error)
    if line.trace:
        said["stacktrace"] = line.trace
    return json.dumps(said, default=words, skipkeys=True, separators=(",", ":")) + "\n"


def _plain(value: Any) -> Any:
    return value if type(value) in JSON_TYPES else words(value)
