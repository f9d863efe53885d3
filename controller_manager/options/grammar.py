"""The grammar of command lines, which is that of pflag: words become values of flags, or problems."""

from collections.abc import Iterable, Mapping
from typing import Any

from controller_manager.options.flag import Flag


class Reading:
    """One pass over a command line: the values by flag name, and the problems in order of appearance."""

    def __init__(self, by_name: Mapping[str, Flag], by_short: Mapping[str, Flag]) -> None:
        self._by_name = by_name
        self._by_short = by_short
        self.values: dict[str, Any] = {}
        self.given: dict[str, str] = {}
        self.refused: set[str] = set()
        self.problems: list[str] = []

    def read(self, argv: list[str]) -> None:
        """Take every argument."""
        position = 0
        while position < len(argv):
            word = argv[position]
            following = argv[position + 1] if position + 1 < len(argv) else None
            if word == "--":
                self.problems.extend(f"unexpected argument {one!r}" for one in argv[position + 1 :])
                return
            if word.startswith("--"):
                position += self._long(word[2:], following)
            elif word.startswith("-") and word != "-":
                position += self._shorts(word[1:], following)
            else:
                self._stray(word, argv[position - 1] if position else "")
            position += 1

    def _long(self, word: str, following: str | None) -> int:
        name, equals, text = word.partition("=")
        flag = self._by_name.get(name.replace("_", "-"))
        if flag is None:
            closest = did_you_mean(name.replace("_", "-"), self._by_name, "--")
            self.problems.append(f"--{name} is not a flag{closest}")
            return 1 if not equals and following is not None and not following.startswith("-") else 0
        return self._take(flag, f"--{name}", text if equals else None, following)

    def _shorts(self, word: str, following: str | None) -> int:
        """`-v2`, `-v=2`, `-v 2`; several truth values may share one dash."""
        while word:
            letter, word = word[0], word[1:]
            flag = self._by_short.get(letter)
            if flag is None:
                self.problems.append(f"-{letter} is not a flag")
                return 0
            if flag.type.bare is not None and not word.startswith("="):
                self._take(flag, f"-{letter}", flag.type.bare, None)
                continue
            text = word[1:] if word.startswith("=") else word or None
            return self._take(flag, f"-{letter}", text, following)
        return 0

    def _take(self, flag: Flag, shown: str, text: str | None, following: str | None) -> int:
        """Read one value; returns how many of the following words it used."""
        used = 0
        self.given[flag.name] = shown
        if text is None:
            text = flag.type.bare
        if text is None and following is not None:
            text, used = following, 1
        if text is None:
            self._refuse(flag, f"{shown} needs a value of type {flag.declared.metavar or flag.type.label}")
            return 0
        self._set(flag, shown, text)
        return used

    def _set(self, flag: Flag, shown: str, text: str) -> None:
        try:
            value = flag.type.parse(text)
            flag.check(value)
        except ValueError as error:
            self._refuse(flag, f"{shown}: {error}, got {text!r}")
            return
        if flag.type.join is not None and flag.name in self.values:
            value = flag.type.join(self.values[flag.name], value)
        self.values[flag.name] = value

    def _refuse(self, flag: Flag, problem: str) -> None:
        self.refused.add(flag.name)
        self.problems.append(problem)

    def _stray(self, word: str, before: str) -> None:
        flag = self._by_name.get(before.removeprefix("--").replace("_", "-")) if before.startswith("--") else None
        hint = f"; write {before}={word}" if flag is not None and flag.type.bare is not None else ""
        self.problems.append(f"unexpected argument {word!r}{hint}")


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a half-sentence with the known name that is most alike, `prefix` before it; empty if none is."""
    import difflib  # only a mistake needs it

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {prefix}{close[0]}?" if close else ""
