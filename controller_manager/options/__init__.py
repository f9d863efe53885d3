"""Floor 2: command-line flags as typed values; a flag is one field of an `Options` class, beside its reader."""

from controller_manager.options.flag import Options, flag
from controller_manager.options.gates import Gate, resolve_gates
from controller_manager.options.parse import FlagError, FlagSet, Parsed
from controller_manager.options.process import command_line
from controller_manager.options.types import Duration, Int32, Quantity, StringList, StringMap

__all__ = [
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
    "command_line",
    "flag",
    "resolve_gates",
]
