"""The typed client of the API, with its transports, configuration, credentials, discovery and events."""

from typing import TYPE_CHECKING

from controller_manager._moved_modules import moved_names

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__ = moved_names(__name__)
