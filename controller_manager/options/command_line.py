"""The start of a process: its command line becomes options, or a printed answer and an exit status."""

import sys
from collections.abc import Mapping, Sequence

from controller_manager.options.general import GeneralOptions
from controller_manager.options.parse import FlagError, FlagSet, Parsed

_HELP = frozenset({"-h", "--help"})
_NO_NOTES: Mapping[str, str] = {}


def command_line(
    program: str, summary: str, flags: FlagSet, argv: Sequence[str], notes: Mapping[str, str] = _NO_NOTES
) -> Parsed:
    """The options of `argv` (without the program's name); `notes` are paragraphs by heading for the end of the help.

    Prints help or version and raises SystemExit(0); prints every problem and raises SystemExit(1).
    """
    words = argv[: argv.index("--")] if "--" in argv else argv
    if _HELP.intersection(words):  # whatever else is wrong
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
    """The version a process says it is of, such as v1.36.0+cluster-controller-manager.0.1.0, or what --version sets."""
    return parsed[GeneralOptions].reported()


def _print_help(program: str, summary: str, flags: FlagSet, notes: Mapping[str, str]) -> None:
    import shutil  # the help path alone needs these two

    from controller_manager.options.help import help_text

    sys.stdout.write(help_text(program, summary, flags, shutil.get_terminal_size().columns, notes))
    raise SystemExit(0)
