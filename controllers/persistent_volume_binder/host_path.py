"""Directories of the manager's host as volumes, for tests on a single machine only.

Nothing outside `/tmp` is ever created or deleted, whatever a volume specifies.
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
    """A directory cannot be created or deleted; the message says why."""


def path_of(volume: PersistentVolume) -> str:
    """Return the directory of a volume, or an empty string for other kinds."""
    source = bytes(volume.spec.host_path)
    return str(msgspec.json.decode(source).get("path", "")) if source else ""


def source_of(path: str) -> msgspec.Raw:
    """Return a directory as volume source."""
    return msgspec.Raw(msgspec.json.encode({"path": path}))


def new_path() -> str:
    """Return an unused directory name."""
    return f"{_BASE}/{random_source().uid()}"


def make(path: str) -> None:
    """Create a directory. Raises HostPathError."""
    try:
        os.makedirs(path, 0o750, exist_ok=True)
    except OSError as error:
        raise HostPathError(f"the folder {path} cannot be made: {error}") from None


def delete(path: str) -> None:
    """Delete a directory with its content, if it exists. Raises HostPathError."""
    if not is_deletable(path):
        raise HostPathError(f"only folders below {ROOT} are deleted, not {path or 'a volume without a host path'}")
    try:
        if os.path.islink(path) or os.path.isfile(path):
            os.unlink(path)
        elif os.path.lexists(path):
            shutil.rmtree(path)
    except OSError as error:
        raise HostPathError(f"the folder {path} cannot be deleted: {error}") from None


def is_deletable(path: str) -> bool:
    """Return whether a path is below the root, also after resolving symbolic links."""
    if not path.startswith(f"{ROOT}/") or ".." in Path(path).parts or Path(path) == Path(ROOT):
        return False
    above = Path(os.path.realpath(os.path.dirname(path.rstrip("/"))))
    return above.is_relative_to(os.path.realpath(ROOT))
