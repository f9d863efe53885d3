"""Folders of the machine that the manager runs on, as volumes: for tests on one machine only.

Nothing outside `/tmp` is ever made or deleted, whatever a volume says.
"""

import os
import shutil
from pathlib import Path

import msgspec

from controller_manager.common.api.storage import PersistentVolume
from controller_manager.common.base.random import random_source

ROOT = "/tmp"  # noqa: S108
_BASE = f"{ROOT}/hostpath_pv"


class HostPathError(Exception):
    """A folder that cannot be made or deleted; says why."""


def path_of(volume: PersistentVolume) -> str:
    """Return the folder of a volume; empty if it is of another kind."""
    source = bytes(volume.spec.host_path)
    return str(msgspec.json.decode(source).get("path", "")) if source else ""


def source_of(path: str) -> msgspec.Raw:
    """Return a folder as the source of a volume."""
    return msgspec.Raw(msgspec.json.encode({"path": path}))


def new_path() -> str:
    """Return the name of a folder that nobody has."""
    return f"{_BASE}/{random_source().uid()}"


def make(path: str) -> None:
    """Make a folder. Raises HostPathError."""
    try:
        os.makedirs(path, 0o750, exist_ok=True)
    except OSError as error:
        raise HostPathError(f"the folder {path} cannot be made: {error}") from None


def delete(path: str) -> None:
    """Delete a folder with all that is in it, if it is there. Raises HostPathError."""
    if not is_deletable(path):
        raise HostPathError(f"only folders below {ROOT} are deleted, not {path or 'what is no folder of a host'}")
    try:
        if os.path.islink(path) or os.path.isfile(path):
            os.unlink(path)
        elif os.path.lexists(path):
            shutil.rmtree(path)
    except OSError as error:
        raise HostPathError(f"the folder {path} cannot be deleted: {error}") from None


def is_deletable(path: str) -> bool:
    """Tell whether a path is below the root, also when the links on the way there are followed."""
    if not path.startswith(f"{ROOT}/") or ".." in Path(path).parts or Path(path) == Path(ROOT):
        return False
    above = Path(os.path.realpath(os.path.dirname(path.rstrip("/"))))
    return above.is_relative_to(os.path.realpath(ROOT))
