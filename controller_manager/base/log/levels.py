"""How much is said, in the process and in single files of it."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

Pattern = tuple[str, int]


class Levels:
    """`verbosity` holds everywhere; in a file that one of `patterns` matches, so does the level of the first such.

    A pattern (`*`, `?`, `[...]`) is compared with the name of the file without `.py`; one with slashes with as many
    parts of its path, from the end. It only ever adds to what is said (kube-controller-manager options, `--vmodule`).
    """

    def __init__(self, verbosity: int = 0, patterns: Sequence[Pattern] = ()) -> None:
        self.verbosity = verbosity
        self._patterns = tuple((tuple(pattern.split("/")), level) for pattern, level in patterns)
        self._of_file: dict[str, int] = {}

    def shows(self, level: int, file: str) -> bool:
        """Whether lines of this level are written when they come from `file`."""
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
