"""The text of `--help`: flags by section with type, meaning and default, wrapped to the terminal."""

import textwrap

from controller_manager.options.flag import Flag, title_of
from controller_manager.options.parse import FlagSet

_INDENT = 10
_GENERAL = (
    ("  -h, --help", "Print this help and exit."),
    ("      --version", "Print the version and exit."),
)


def help_text(program: str, summary: str, flags: FlagSet, width: int = 80) -> str:
    """The whole help, ending in a newline; `width` is the width of the terminal in columns."""
    blocks = [*textwrap.wrap(summary, width), "", f"Usage: {program} [flags]", ""]
    for group, members in flags.flags.items():
        acting = [flag for flag in members if flag.declared.inert is None]
        if acting:
            blocks += [f"{title_of(group)} flags:", "", *_entries(acting, width), ""]
    inert = [flag for flag in flags if flag.declared.inert is not None]
    if inert:
        blocks += ["Flags accepted without effect:", ""]
        for flag in inert:
            blocks += _entry(_left(flag), _sentence(flag.declared.inert or ""), width)
        blocks += [""]
    blocks += ["General flags:", ""]
    for left, text in _GENERAL:
        blocks += _entry(left, text, width)
    return "\n".join(blocks) + "\n"


def _entries(flags: list[Flag], width: int) -> list[str]:
    return [line for flag in flags for line in _entry(_left(flag), _right(flag), width)]


def _entry(left: str, text: str, width: int) -> list[str]:
    indent = " " * _INDENT
    return [
        left,
        *textwrap.wrap(text, max(width, 40), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False),
    ]


def _left(flag: Flag) -> str:
    short = f"-{flag.declared.short}, " if flag.declared.short else "    "
    kind = "" if flag.type.label == "bool" else f" {flag.declared.metavar or flag.type.label}"
    return f"  {short}--{flag.name}{kind}"


def _right(flag: Flag) -> str:
    said = flag.declared
    notes = [f"one of: {', '.join(said.choices)}"] if said.choices else []
    notes += [f"also --{', --'.join(said.aliases)}"] if said.aliases else []
    notes += [f"default {flag.type.format(flag.default)}"] if flag.default or flag.type.label == "duration" else []
    tail = f" ({'; '.join(notes)})" if notes else ""
    return f"{_sentence(said.help)}{tail}"


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
