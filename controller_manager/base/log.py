"""Structured logs: one configuration at start-up, one bound logger per component."""

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

Logger = FilteringBoundLogger


def configure(*, json: bool = False, verbosity: int = 0, stream: TextIO | None = None) -> None:
    """Send every log line to `stream` (standard error), as text or JSON; `verbosity` 4 and more shows debug lines."""
    level = logging.DEBUG if verbosity >= 4 else logging.INFO
    out = stream or sys.stderr
    render = _as_json() if json else _as_text(colors=out.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=out, force=True, format="%(levelname)s %(name)s: %(message)s")


def get_logger(component: str) -> Logger:
    """A logger that says which component speaks."""
    logger: Logger = structlog.get_logger(component=component)
    return logger


# A failure is logged without the variables of its frames: they may hold tokens and keys.


def _as_json() -> list[Processor]:
    transform = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(transform), structlog.processors.JSONRenderer()]


def _as_text(*, colors: bool) -> list[Processor]:
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, exception_formatter=plain)]
