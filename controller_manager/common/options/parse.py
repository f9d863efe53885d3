"""Parses command lines into options; reports all errors at once."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace
from pydantic import ValidationError

from controller_manager.common.options.flag import Flag, GeneralOptions, Options, flags_of

# The grammar of command lines is that of pflag.


class FlagReading:
    """The result of parsing a command line: values by flag name, and errors in order of appearance."""

    def __init__(self, by_name: Mapping[str, Flag], by_short: Mapping[str, Flag]) -> None:
        self._by_name = by_name
        self._by_short = by_short
        self.values: dict[str, Any] = {}
        self.given: dict[str, str] = {}
        self.refused: set[str] = set()
        self.problems: list[str] = []

    def read(self, argv: list[str]) -> None:
        """Parse all arguments."""
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
        """Parse `-v2`, `-v=2` or `-v 2`; several boolean flags may be combined after one dash."""
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
        """Parse one value; return the number of following arguments it used."""
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
    """Return a suggestion with the most similar known name after `prefix`; empty if there is no similar name."""
    import difflib  # needed only for errors

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


G = TypeVar("G", bound=Options)
_NOTHING: Mapping[str, Any] = {}


class FlagError(Exception):
    """An invalid command line; each problem is a sentence that names its flag."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _Refused(Exception):
    """A check accessed a group whose flags have errors, which are already reported."""


class Parsed:
    """The options of a process, one instance per group, by class or base class. `given` holds for each given flag how
    it was written.
    """

    def __init__(
        self, *options: Options, given: Mapping[str, str] = _NOTHING, refused: Iterable[type[Options]] = ()
    ) -> None:
        self.given = given
        self._options: Mapping[type[Options], Options] = {type(one): one for one in options}
        self._by_base = {base: one for one in options for base in type(one).__mro__} | self._options
        self._refused = frozenset(base for group in refused for base in group.__mro__)

    def __getitem__(self, group: type[G]) -> G:
        found = self._by_base.get(group)
        if found is None:
            raise _Refused if group in self._refused else KeyError(group)
        assert isinstance(found, group)
        return found

    def settings(self) -> dict[str, Any]:
        """Return the current value of every flag by name, with durations as text, for JSON."""
        return {flag.name: _plain(flag, value) for flag, value in self._values()}

    def texts(self) -> dict[str, str]:
        """Return the current value of every flag by name in command-line format; empty if unset."""
        return {flag.name: "" if value is None else flag.type.format(value) for flag, value in self._values()}

    def remarks(self) -> Iterator[str]:
        """Yield warnings about given flags: alternative spellings, and flags without effect."""
        for name, shown in self.given.items():
            if "_" in shown:
                yield f"{shown} is accepted for --{name}"
        without: dict[str, list[str]] = {}
        for flag, _ in self._values():
            if flag.declared.inert and flag.name in self.given:
                without.setdefault(flag.declared.inert, []).append(self.given[flag.name])
        for why, names in without.items():
            yield f"{', '.join(names)} without effect: {why}, which is not built yet"

    def _values(self) -> Iterator[tuple[Flag, Any]]:
        for group, options in self._options.items():
            for flag in flags_of(group):
                yield flag, getattr(options, flag.field)


Check = Callable[[Parsed], Iterable[str]]
"""A rule for several groups; it yields a sentence naming the flags for each error."""


class FlagSet:
    """The groups of flags of a process, including those that every process has; duplicates are ignored. `defaults`
    replace the defaults of flags by name.
    Each of `checks` may access all groups. It ends early, without an error, if it accesses a group that has errors of
    its own.
    """

    def __init__(
        self, *groups: type[Options], checks: Iterable[Check] = (), defaults: Mapping[str, Any] = _NOTHING
    ) -> None:
        every: tuple[type[Options], ...] = (*groups, GeneralOptions)
        self.groups = tuple(dict.fromkeys(every))
        self._checks = tuple(checks)
        self._defaults = defaults
        self.flags: dict[type[Options], list[Flag]] = {
            group: [replace(flag, default=defaults.get(flag.name, flag.default)) for flag in flags_of(group)]
            for group in self.groups
        }
        self._by_name: dict[str, Flag] = {}
        self._by_short: dict[str, Flag] = {}
        for flag in self:
            self._register(flag)

    def __iter__(self) -> Iterator[Flag]:
        return (flag for flags in self.flags.values() for flag in flags)

    def parse(self, argv: Sequence[str]) -> Parsed:
        """Return the options of a command line (without the program's name); raises FlagError."""
        reading = FlagReading(self._by_name, self._by_short)
        reading.read(list(argv))
        options = [one for group in self.groups if (one := self._build(group, reading)) is not None]
        refused = set(self.groups).difference(map(type, options))
        parsed = Parsed(*options, given=reading.given, refused=refused)
        problems = [*reading.problems, *(problem for check in self._checks for problem in _judge(check, parsed))]
        if problems:
            raise FlagError(problems)
        return parsed

    def _register(self, flag: Flag) -> None:
        for name in (flag.name, *flag.declared.aliases):
            other = self._by_name.setdefault(name, flag)
            if other is not flag:
                raise ValueError(f"--{name} is declared by {other.group.__name__} and {flag.group.__name__}")
        if flag.declared.short:
            self._by_short[flag.declared.short] = flag

    def _build(self, group: type[Options], reading: FlagReading) -> Options | None:
        names = {flag.field: flag.name for flag in self.flags[group]}
        if reading.refused.intersection(names.values()):
            return None
        values = {**self._defaults, **reading.values}
        given = {field: values[name] for field, name in names.items() if name in values}
        try:
            return group(**given)
        except ValidationError as error:
            reading.problems.extend(_sentence(one, names) for one in error.errors())
            return None


def _judge(check: Check, parsed: Parsed) -> Iterator[str]:
    with contextlib.suppress(_Refused):
        yield from check(parsed)


def _sentence(error: Any, names: Mapping[str, str]) -> str:
    """Return an error of pydantic as text: the sentence of a validator, or the flag and its error."""
    message = str(error["msg"]).removeprefix("Value error, ")
    where = [names[part] for part in error["loc"] if part in names]
    return f"--{where[0]}: {message}" if where else message


def _plain(flag: Flag, value: Any) -> Any:
    if flag.type.label == "duration" and value is not None:
        return flag.type.format(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
