"""The names by which people know the places in a program."""

import sys
from pathlib import PurePath

from controller_manager.base.stacks import Frame


class Modules:
    """The modules that are loaded when this is made, by their files."""

    def __init__(self) -> None:
        # Not by `getattr`: there are modules that load others when they are asked for what they do not have.
        files = ((name, getattr(module, "__dict__", {}).get("__file__")) for name, module in tuple(sys.modules.items()))
        self._by_file = {file: name for name, file in files if isinstance(file, str)}

    def name(self, frame: Frame) -> str:
        """A function with its module; for a file that is no module's, with the name of the file."""
        return f"{self.of(frame.file) or PurePath(frame.file).stem}.{frame.function}" if frame.file else frame.function

    def of(self, file: str) -> str:
        """The module that a file holds; empty if there is none."""
        return self._by_file.get(file, "")
