"""Flags of controllers that do not exist yet: read and checked like all others, and without effect."""

from typing import ClassVar

from controller_manager.options import Options


class AwaitedOptions(Options):
    """Flags of controllers to come."""

    title: ClassVar[str] = "Controllers to come"
