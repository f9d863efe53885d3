"""The one place where logging is configured, for components and for other libraries alike."""

import atexit
import logging
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from controller_manager.base.log.formats import as_json, as_text
from controller_manager.base.log.line import Line, from_event, from_record
from controller_manager.base.log.logger import Levels, Logger
from controller_manager.base.log.mask import without_secrets
from controller_manager.base.log.streams import CurrentStderr, Streams

Form = Callable[[Line], str]


def configure(*, json: bool = False, levels: Levels | None = None, streams: Streams | None = None) -> None:
    """Write every line as klog does, or as JSON, to `streams` (standard error) from now on, those of other libraries
    from warnings on.
    """
    form, to = as_json if json else as_text, streams or Streams(CurrentStderr())
    _use(form, levels or Levels(), to, hidden=("process",))  # the header, or the collector of the log, tells it
    logging.basicConfig(level=logging.WARNING, handlers=[_Handler(form, to)], force=True)
    atexit.register(to.close)


def get_logger(component: str) -> Logger:
    """A logger that says which component speaks. Where nobody has configured logs, as in a test, debug lines are left
    out and the others go to what is standard error then.
    """
    if not structlog.is_configured():
        _use(as_text, Levels(), Streams(CurrentStderr()), hidden=())
    logger: Logger = structlog.get_logger().bind(component=component)
    return logger


def _use(form: Form, levels: Levels, streams: Streams, *, hidden: tuple[str, ...]) -> None:
    structlog.configure(
        processors=[_Render(form, hidden)],
        wrapper_class=type("Logger", (Logger,), {"levels": levels}),
        logger_factory=lambda *_: streams,
        cache_logger_on_first_use=False,
    )


class _Render:
    """The only processor: makes of an event what `Streams.write` takes."""

    def __init__(self, form: Form, hidden: tuple[str, ...]) -> None:
        self._form = form
        self._hidden = hidden

    def __call__(self, _: Any, method: str, event: MutableMapping[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
        for name in self._hidden:
            event.pop(name, None)
        line = from_event(method, event)
        return (line.severity, without_secrets(self._form(line))), {}


class _Handler(logging.Handler):
    """Writes what other libraries say."""

    def __init__(self, form: Form, streams: Streams) -> None:
        super().__init__()
        self._form = form
        self._streams = streams

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        line = from_record(record)
        self._streams.write(line.severity, without_secrets(self._form(line)))
