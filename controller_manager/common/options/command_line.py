"""Parses a command line into options, or prints the text of `--help`, the version or the errors and exits."""

import sys
import textwrap
from collections.abc import Mapping, Sequence

from controller_manager.common.options.flag import Flag, GeneralOptions, title_of
from controller_manager.common.options.parse import FlagError, FlagSet, Parsed

_INDENT = 10
_NO_NOTES: Mapping[str, str] = {}


def help_text(program: str, summary: str, flags: FlagSet, width: int = 80, notes: Mapping[str, str] = _NO_NOTES) -> str:
    """Return the help text, ending in a newline; `width` is the width of the terminal in columns."""
    width = max(width, 40)
    blocks = [*textwrap.wrap(summary, width), "", f"Usage: {program} [flags]", ""]
    for group, members in flags.flags.items():
        if acting := [flag for flag in members if not flag.declared.inert]:
            blocks += [f"{title_of(group)} flags:", "", *_entries(acting, width), ""]
    for why, members in inert_flags(flags).items():
        heading = textwrap.wrap(f"Flags accepted without effect ({why}):", width, break_on_hyphens=False)
        blocks += [*heading, "", *_entries(members, width), ""]
    for title, text in notes.items():
        blocks += [f"{title}:", "", *_wrapped(text, width, 2), ""]
    return "\n".join(blocks[:-1]) + "\n"


def inert_flags(flags: FlagSet) -> dict[str, list[Flag]]:
    """Return the flags without effect, by reason."""
    found: dict[str, list[Flag]] = {}
    for flag in flags:
        if flag.declared.inert:
            found.setdefault(flag.declared.inert, []).append(flag)
    return found


def bounds(flag: Flag) -> list[str]:
    """Return the limits of a flag's value in words."""
    declared = flag.declared
    found = [f"one of {', '.join(declared.choices)}"] if declared.choices else []
    limits = (("at least", declared.minimum), ("at most", declared.maximum))
    return found + [f"{word} {flag.type.format(limit)}" for word, limit in limits if limit is not None]


def _meaning(flag: Flag) -> str:
    """Return the help of a flag as a sentence with its limits, aliases and default."""
    declared = flag.declared
    notes = bounds(flag)
    notes += [f"also --{', --'.join(declared.aliases)}"] if declared.aliases else []
    notes += [f"default {flag.type.format(flag.default)}"] if flag.default or flag.type.label == "duration" else []
    tail = f" ({'; '.join(notes)})" if notes else ""
    return f"{sentence(declared.help)}{tail}"


def _entries(flags: Sequence[Flag], width: int) -> list[str]:
    return [line for flag in flags for line in (_left(flag), *_wrapped(_meaning(flag), width, _INDENT))]


def _wrapped(text: str, width: int, columns: int) -> list[str]:
    indent = " " * columns
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _left(flag: Flag) -> str:
    short = f"-{flag.declared.short}, " if flag.declared.short else "    "
    kind = "" if flag.type.label == "bool" else f" {flag.declared.metavar or flag.type.label}"
    return f"  {short}--{flag.name}{kind}"


def sentence(text: str) -> str:
    """Return the text with a capital letter and a full stop."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


_HELP = frozenset({"-h", "--help"})


def command_line(
    program: str, summary: str, flags: FlagSet, argv: Sequence[str], notes: Mapping[str, str] = _NO_NOTES
) -> Parsed:
    """Return the options of `argv` (without the program's name); `notes` are paragraphs by heading for the help.

    Prints help or version and raises SystemExit(0); prints all errors and raises SystemExit(1).
    """
    words = argv[: argv.index("--")] if "--" in argv else argv
    if _HELP.intersection(words):  # even if there are errors
        _print_help(program, summary, flags, notes)
    try:
        parsed = flags.parse(argv)
    except FlagError as error:
        lines = "".join(f"{program}: {problem}\n" for problem in error.problems)
        sys.stderr.write(f"{lines}Run '{program} --help' for all flags.\n")
        raise SystemExit(1) from None
    if parsed[GeneralOptions].help:
        _print_help(program, summary, flags, notes)
    if text := parsed[GeneralOptions].printed(program):
        sys.stdout.write(text)
        raise SystemExit(0)
    return parsed


def reported_version(parsed: Parsed) -> str:
    """Return the version that a process reports, such as v1.36.0+cluster-controller-manager.0.2.0, or that of
    --version.
    """
    return parsed[GeneralOptions].reported()


def _print_help(program: str, summary: str, flags: FlagSet, notes: Mapping[str, str]) -> None:
    import shutil  # needed only for help

    sys.stdout.write(help_text(program, summary, flags, shutil.get_terminal_size().columns, notes))
    raise SystemExit(0)
