"""Atomic writes, files in memory, and folders that only their owner can read."""

import os
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SECRET = (".key", ".kubeconfig", ".pem")


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """Yield the path of a temporary file that only this user can read, for libraries that accept only paths.

    On Linux the file is in memory, so that a private key is never on disk and a read-only file system is enough.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("data"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name


def private_folder(path: Path, marks: Collection[str]) -> None:
    """Create the folder `path`, or make it accessible for its owner only.

    An existing folder is changed if it is empty or contains one of `marks`, which are names of our files. Raises
    ValueError for another folder that other users can access. Keys and kubeconfigs in the folder become readable for
    their owner only. Raises OSError.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found, names = path.stat(), set(os.listdir(path))
    if found.st_mode & _OTHERS:
        if found.st_uid != os.geteuid() or (names and names.isdisjoint(marks)):
            raise ValueError(
                f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o}) and would hold private keys; name "
                "a new folder, or make this one yours alone with chmod 0700"
            )
        path.chmod(0o700)
    for file in (path / name for name in names if name.endswith(_SECRET)):
        if file.lstat().st_mode & _OTHERS and file.is_file() and not file.is_symlink():
            file.chmod(0o600)


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace or create `path` with `data` and the permissions `mode`, and sync it to disk. Creates the folder, if it
    is missing, with access for its owner only.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
