"""Command-line flags as typed values; a flag is a field of an `Options` class next to the code that uses it."""

from typing import TYPE_CHECKING

from controller_manager._moved_modules import moved_names

# Former names of this package that modules of it have too.
from controller_manager.common.options.command_line import command_line as command_line
from controller_manager.common.options.flag import flag as flag

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__ = moved_names(__name__)
