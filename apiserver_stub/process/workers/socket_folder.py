"""The folder of the socket between workers and store. It is not in the data folder, whose path may be too long for a
socket.
"""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "apiserver-"
_SOCKET = "store.sock"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Create a private folder and yield a socket path in it; the folder is removed at the end.

    Folders of killed processes are removed first: those of this user with a socket that has no listener.
    """
    for other in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_SOCKET}"):
        if _is_left(other):
            _remove(other)
    path = Path(tempfile.mkdtemp(prefix=_PREFIX)) / _SOCKET
    try:
        yield path
    finally:
        _remove(path)


def _is_left(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.setblocking(False)
        if path.parent.lstat().st_uid != os.getuid():
            return False
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()
