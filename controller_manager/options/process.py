"""The start of a process: its command line becomes options, or a printed answer and an exit status."""

import sys
from collections.abc import Sequence
from importlib.metadata import version

from controller_manager.options.parse import FlagError, FlagSet, Parsed

_DISTRIBUTION = "cluster-controller-manager"
_HELP = frozenset({"-h", "--help", "--help=true"})
_VERSION = frozenset({"--version", "--version=true", "--version=raw"})


def command_line(program: str, summary: str, flags: FlagSet, argv: Sequence[str]) -> Parsed:
    """The options of `argv` (without the program's name).

    Prints help or version and raises SystemExit(0); prints every problem and raises SystemExit(1).
    """
    words = set(argv[: argv.index("--")] if "--" in argv else argv)
    if words & _HELP:
        _print_help(program, summary, flags)
        raise SystemExit(0)
    if words & _VERSION:
        sys.stdout.write(f"{program} v{version(_DISTRIBUTION)}\n")
        raise SystemExit(0)
    try:
        return flags.parse(argv)
    except FlagError as error:
        lines = "".join(f"{program}: {problem}\n" for problem in error.problems)
        sys.stderr.write(f"{lines}Run '{program} --help' for all flags.\n")
        raise SystemExit(1) from None


def _print_help(program: str, summary: str, flags: FlagSet) -> None:
    import shutil  # the help path alone needs these two

    from controller_manager.options.help import help_text

    sys.stdout.write(help_text(program, summary, flags, shutil.get_terminal_size().columns))
