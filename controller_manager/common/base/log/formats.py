"""Log line formats: klog text and JSON."""

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from datetime import datetime
from types import FrameType
from typing import Any

import msgspec

from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.errors import describe, words
from controller_manager.common.base.log.logger import DEBUG

# The last step before a line is written: secrets are masked, whatever their source.

MASKED = "<masked>"
_SIGNS = ("earer ", "asic ", "eyJ", "://", "PRIVATE KEY")
_SECRETS = re.compile(
    r"""
    (?P<scheme>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}                        # an Authorization header
    | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*                                    # a signed token, RFC 7519
    | (?P<url>://)[^\s/"'\\]+(?=@)                                         # a name and password in an address
    | (?P<key>-----BEGIN[ A-Z]*PRIVATE\ KEY-----).*?(?=-----END|\Z)        # a key, RFC 7468
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return the text with `<masked>` in place of tokens, passwords in URLs and private keys."""
    if not any(sign in text for sign in _SIGNS):
        return text
    return _SECRETS.sub(lambda found: f"{found['scheme'] or found['url'] or found['key'] or ''}{MASKED}", text)


# A log line before it is formatted, made from an event of a component or a record of Python's `logging`.

_SEVERITY = {"debug": "I", "info": "I", "warning": "W", "error": "E", "critical": "F"}
JSON_TYPES = frozenset({type(None), bool, int, float, list, tuple, dict})
"""Types written as JSON. Other values are written as `str`, including named tuples such as object keys."""
_JSON = json.JSONEncoder(default=words, skipkeys=True, separators=(",", ":"))

_OURS = ("structlog.", "controller_manager.common.base.log.")


class Line(msgspec.Struct, frozen=True):
    """`severity` is I, W, E or F; `verbatim` is True for a message without fields that is not quoted."""

    severity: str
    time: float
    file: str
    number: int
    message: str
    v: int = 0
    logger: str = ""
    error: object = None
    trace: str = ""
    verbatim: bool = False
    fields: Mapping[str, Any] = {}


def from_event(method: str, event: MutableMapping[str, Any]) -> Line:
    """Return the line for a structlog event. Removes from `event` everything that is not a field."""
    frame = _caller()
    raised = _exception(event.pop("exc_info", None))
    return Line(
        severity=_SEVERITY[method],
        time=wall_seconds(),
        file=frame.f_code.co_filename,
        number=frame.f_lineno,
        message=event.pop("event"),
        v=event.pop("v", DEBUG if method == "debug" else 0),
        logger=event.pop("component", ""),
        error=_in_words(event.pop("error", raised)),
        trace=_trace(raised),
        verbatim=event.pop("verbatim", False),
        fields=event,
    )


def from_record(record: logging.LogRecord) -> Line:
    """Return the line for a record of another library."""
    raised = _exception(record.exc_info)
    level = min(record.levelno // 10 * 10, logging.CRITICAL)
    severity = _SEVERITY.get(logging.getLevelName(level).lower(), "I")
    return Line(
        severity=severity,
        time=record.created,
        file=record.pathname,
        number=record.lineno,
        message=record.getMessage(),
        logger=record.name,
        error=_in_words(raised),
        trace=_trace(raised),
    )


def _caller() -> FrameType:
    """Return the innermost frame outside of this package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return frame


def _in_words(error: object) -> object:
    return describe(error) if isinstance(error, BaseException) else error


def _exception(said: object) -> BaseException | None:
    if said is True:
        return sys.exc_info()[1]
    if isinstance(said, tuple):
        said = said[1]
    return said if isinstance(said, BaseException) else None


def _trace(raised: BaseException | None) -> str:
    """Return the traceback without the variables of its frames, which may hold tokens and keys."""
    return "".join(traceback.format_exception(raised)).rstrip("\n") if raised is not None else ""


_INFO = "I"
_NAMES = {"W": "warning", "F": "critical"}

_SHORT = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
_SHORT |= {'"': r"\"", "\\": r"\\"}


def as_text(line: Line) -> str:
    """Return `I1120 18:48:04.123456   12345 site.py:42] "message" err="reason" key="value"`, ending in a newline.

    A message or a value cannot start a new log line: multi-line values are
    indented.
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
    """Return the text in double quotes as a Go string: one line of printable characters."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(_SHORT.get(one) or _visible(one) for one in text)}"'


def _assigned(value: Any) -> str:
    """Return the part of a field after its name: `=` and the value."""
    if type(value) in JSON_TYPES:
        return f"={_JSON.encode(value)}"
    text = words(value)
    if "\n" not in text or isinstance(value, BaseException):
        return f"={quote(text)}"
    lines = "".join(f"\t{''.join(map(_visible, line))}\n" for line in text.removesuffix("\n").split("\n"))
    return f"=<\n{lines} >"


def _visible(one: str) -> str:
    """Return a character, or an escape sequence if it is not printable."""
    if one.isprintable() or one == "\t":
        return one
    code = ord(one)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def as_json(line: Line) -> str:
    """Return the line as a JSON object, ending in a newline. `ts` is in milliseconds since the epoch. Errors have no
    `v`; only warnings and fatal errors have a `severity`.
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
    return _JSON.encode(said) + "\n"


def _plain(value: Any) -> Any:
    return value if type(value) in JSON_TYPES else words(value)
