"""Command-line flags as typed values; a flag is a field of an `Options` class next to the code that uses it."""

from controller_manager.common.options.command_line import command_line, reported_version
from controller_manager.common.options.flag import Options, flag, release_version
from controller_manager.common.options.gates import Gate, Version, gates_at, resolve_gates
from controller_manager.common.options.parse import Check, FlagError, FlagSet, Parsed
from controller_manager.common.options.types import (
    Duration,
    Int32,
    Quantity,
    StringList,
    StringMap,
    StringMultimap,
    StringPairs,
)

__all__ = [
    "Check",
    "Duration",
    "FlagError",
    "FlagSet",
    "Gate",
    "Int32",
    "Options",
    "Parsed",
    "Quantity",
    "StringList",
    "StringMap",
    "StringMultimap",
    "StringPairs",
    "Version",
    "command_line",
    "flag",
    "gates_at",
    "release_version",
    "reported_version",
    "resolve_gates",
]
