"""One line of the log before it has a form, read from what a component or Python's own `logging` said."""

import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from controller_manager.base.clock import wall_seconds
from controller_manager.base.errors import describe
from controller_manager.base.log.logger import DEBUG

_SEVERITY = {"debug": "I", "info": "I", "warning": "W", "error": "E", "critical": "F"}
JSON_TYPES = frozenset({type(None), bool, int, float, list, tuple, dict})
"""The types written as JSON; everything else by its `str`, named tuples such as keys of objects among it."""

_OURS = ("structlog.", "controller_manager.base.log.")


@dataclass(frozen=True, slots=True)
class Line:
    """`severity` is I, W, E or F; `verbatim` is a message without fields, shown as it is."""

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
    fields: Mapping[str, Any] = field(default_factory=dict)


def from_event(method: str, event: MutableMapping[str, Any]) -> Line:
    """The line a component said: what structlog hands to processors. Takes out of `event` what is no field."""
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
    """The line another library said."""
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
    """The innermost frame that is not of the log itself."""
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
    """Without the variables of its frames: they may hold tokens and keys."""
    return "".join(traceback.format_exception(raised)).rstrip("\n") if raised is not None else ""
