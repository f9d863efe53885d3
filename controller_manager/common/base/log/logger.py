"""The logger of components: structlog with the levels of `-v` and `--vmodule`."""

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from structlog import BoundLoggerBase

DEBUG = 4
Pattern = tuple[str, int]


class Levels:
    """`verbosity` applies to all files. The first of `patterns` that matches a file may raise the level of that file.

    A pattern (`*`, `?`, `[...]`) is compared with the file name without `.py`. A pattern with slashes is compared with
    the same number of path segments from the end. It never lowers the level (kube-controller-manager, `--vmodule`).
    """

    def __init__(self, verbosity: int = 0, patterns: Sequence[Pattern] = ()) -> None:
        self.verbosity = verbosity
        self._patterns = tuple((tuple(pattern.split("/")), level) for pattern, level in patterns)
        self.most = max((verbosity, *(level for _, level in self._patterns)))
        """The highest level that is written from any file."""
        self._of_file: dict[str, int] = {}

    def shows(self, level: int, file: str) -> bool:
        """Return whether lines of `level` from `file` are written."""
        return level <= self.verbosity or (bool(self._patterns) and level <= self._level_of(file))

    def _level_of(self, file: str) -> int:
        level = self._of_file.get(file)
        if level is None:
            parts = file.removesuffix(".py").split("/")
            level = next((number for pattern, number in self._patterns if _matches(parts, pattern)), 0)
            self._of_file[file] = level
        return level


def _matches(parts: list[str], pattern: tuple[str, ...]) -> bool:
    tail = parts[-len(pattern) :]
    return len(tail) == len(pattern) and all(map(fnmatchcase, tail, pattern))


class Logger(BoundLoggerBase):
    """Logs a message and fields: `log.info("serving", port=1)`. `error=` is the reason of a failure, as text or as an
    exception, which is logged with its type.

    The level of `info` is 0, the level of `debug` is 4 unless `v` is given.
    """

    levels: ClassVar[Levels] = Levels()

    def debug(self, event: str, **fields: Any) -> None:
        """Log details for debugging. It costs almost nothing if the level is disabled."""
        level, levels = fields.get("v", DEBUG), self.levels
        if level <= levels.most and levels.shows(level, sys._getframe(1).f_code.co_filename):
            self._proxy_to_logger("debug", event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log information for the operator."""
        self._proxy_to_logger("info", event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log something that needs attention if it continues."""
        self._proxy_to_logger("warning", event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an error."""
        self._proxy_to_logger("error", event, **fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error, with the traceback of the exception being handled."""
        self._proxy_to_logger("error", event, **{"exc_info": True, **fields})

    def critical(self, event: str, **fields: Any) -> None:
        """Log the reason why the process exits."""
        self._proxy_to_logger("critical", event, **fields)

    def shows(self, v: int) -> bool:
        """Return whether lines of level `v` of the calling file are written. Use it for expensive fields."""
        levels = self.levels
        return v <= levels.most and levels.shows(v, sys._getframe(1).f_code.co_filename)
