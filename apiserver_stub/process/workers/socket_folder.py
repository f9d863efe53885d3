"""The folder of the socket at which the workers of one server reach their store: outside of data folders, whose paths
may be too long for a socket.
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
    """Have a path for a socket, in a folder of its own that is removed in the end.

    Those that others left behind, who were killed, are removed first: folders of this user with a socket at which
    nobody listens.
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
