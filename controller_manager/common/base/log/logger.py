"""The logger of components: structlog's, with the levels of `-v` and `--vmodule` in front."""

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from structlog import BoundLoggerBase

DEBUG = 4
Pattern = tuple[str, int]


class Levels:
    """`verbosity` holds everywhere; in a file that one of `patterns` matches, so does the level of the first such.

    A pattern (`*`, `?`, `[...]`) is compared with the name of the file without `.py`; one with slashes with as many
    parts of its path, from the end. It only ever adds to what is said (kube-controller-manager options, `--vmodule`).
    """

    def __init__(self, verbosity: int = 0, patterns: Sequence[Pattern] = ()) -> None:
        self.verbosity = verbosity
        self._patterns = tuple((tuple(pattern.split("/")), level) for pattern, level in patterns)
        self.most = max((verbosity, *(level for _, level in self._patterns)))
        """The highest level of which lines are written from any file."""
        self._of_file: dict[str, int] = {}

    def shows(self, level: int, file: str) -> bool:
        """Return whether lines of this level are written when they come from `file`."""
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
    """A message and fields: `log.info("serving", port=1)`. `error=` is the reason of a failure, in words or
    as the exception itself, which is told with its type.

    Levels as users count them: what `info` says is 0, what `debug` says 4, unless `v` is given.
    """

    levels: ClassVar[Levels] = Levels()

    def debug(self, event: str, **fields: Any) -> None:
        """Log what helps to understand the program at work; costs next to nothing where nobody listens."""
        level, levels = fields.get("v", DEBUG), self.levels
        if level <= levels.most and levels.shows(level, sys._getframe(1).f_code.co_filename):
            self._proxy_to_logger("debug", event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log what who runs the program wants to know."""
        self._proxy_to_logger("info", event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log what may need somebody's attention if it goes on."""
        self._proxy_to_logger("warning", event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an error."""
        self._proxy_to_logger("error", event, **fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error, with the traceback of the exception being handled."""
        self._proxy_to_logger("error", event, **{"exc_info": True, **fields})

    def critical(self, event: str, **fields: Any) -> None:
        """Log the reason why the process ends."""
        self._proxy_to_logger("critical", event, **fields)

    def shows(self, v: int) -> bool:
        """Return whether the calling file may say things of level `v`: for what is costly to put into words."""
        levels = self.levels
        return v <= levels.most and levels.shows(v, sys._getframe(1).f_code.co_filename)
