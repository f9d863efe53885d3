"""Structured logs: one configuration at start-up, one bound logger per component."""

import logging
import sys
from collections.abc import Callable
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

Logger = FilteringBoundLogger


def configure(*, json: bool = False, verbosity: int = 0, stream: TextIO | None = None) -> None:
    """Send every log line to `stream` (standard error), as text or JSON; `verbosity` 4 and more shows debug lines."""
    out = stream or sys.stderr
    render = _as_json() if json else _as_text(colors=out.isatty())
    _set(logging.DEBUG if verbosity >= 4 else logging.INFO, render, structlog.WriteLoggerFactory(file=out))
    logging.basicConfig(level=logging.WARNING, stream=out, force=True, format="%(levelname)s %(name)s: %(message)s")


def get_logger(component: str) -> Logger:
    """A logger that says which component speaks. Where nobody has configured logs, as in a test, debug lines are left
    out and the others go to what is standard error then.
    """
    if not structlog.is_configured():
        _set(logging.INFO, _as_text(colors=False), lambda *_: structlog.WriteLogger(sys.stderr))
    logger: Logger = structlog.get_logger(component=component)
    return logger


def _set(level: int, render: list[Processor], factory: Callable[..., structlog.WriteLogger]) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )


# A failure is logged without the variables of its frames: they may hold tokens and keys.


def _as_json() -> list[Processor]:
    transform = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(transform), structlog.processors.JSONRenderer()]


def _as_text(*, colors: bool) -> list[Processor]:
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, exception_formatter=plain)]
