"""Files that are whole or absent, files that are on no disk, and folders that are their owner's alone."""

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
    """Yield the path of a file that only we can read and that is gone afterwards, for libraries that read only files.

    Where Linux is beneath it is on no disk: a private key leaves no trace, and a file system nobody may write to is no
    obstacle.
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
    """Make `path` a folder that nobody but its owner may look into.

    One that is there already is tightened if it is empty or holds one of `marks`, which are files of ours. Any other
    that is open to others is somebody's for another purpose, and refused: raises ValueError. Keys and
    kubeconfigs in it become their owner's alone too. Raises OSError.
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
    """Replace or create `path` with `data`, durable, readable as `mode` says; makes the folder if need be,
    its owner's alone.
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
