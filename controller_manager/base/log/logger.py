"""The logger components speak through: structlog's, with the levels of `-v` and `--vmodule` in front."""

import sys
from typing import Any, ClassVar

from structlog import BoundLoggerBase

from controller_manager.base.log.levels import Levels

DEBUG = 4


class Logger(BoundLoggerBase):
    """A message and fields: `log.info("serving", port=1)`. `error=` is the reason of a failure, in words or
    as the exception itself, which is told with its type.

    Levels as users count them: what `info` says is 0, what `debug` says 4, unless `v` is given.
    """

    levels: ClassVar[Levels] = Levels()

    def debug(self, event: str, **fields: Any) -> None:
        """What helps to understand the program at work; costs next to nothing where nobody listens."""
        if self.levels.shows(fields.get("v", DEBUG), sys._getframe(1).f_code.co_filename):
            self._proxy_to_logger("debug", event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """What who runs the program wants to know."""
        self._proxy_to_logger("info", event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """What may need somebody's attention if it goes on."""
        self._proxy_to_logger("warning", event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """What went wrong."""
        self._proxy_to_logger("error", event, **fields)

    def exception(self, event: str, **fields: Any) -> None:
        """What went wrong, with the traceback of the exception being handled."""
        self._proxy_to_logger("error", event, **{"exc_info": True, **fields})

    def critical(self, event: str, **fields: Any) -> None:
        """Why the process ends."""
        self._proxy_to_logger("critical", event, **fields)

    def shows(self, v: int) -> bool:
        """Whether the calling file may say things of level `v`: for what is costly to put into words."""
        return self.levels.shows(v, sys._getframe(1).f_code.co_filename)
