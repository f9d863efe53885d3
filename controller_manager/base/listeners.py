"""Which process listens on a port of this machine, as far as the system tells."""

import os
from collections.abc import Iterator
from pathlib import Path

_LISTENS = "0A"  # in /proc/net/tcp
_LONGEST = 100  # characters of a command line


def listener_on(port: int) -> str:
    """Who listens on a TCP port, as `process 12 (program and arguments)`; empty if that cannot be known."""
    inodes = {f"socket:[{inode}]" for inode in _sockets(port)}
    if not inodes:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        if any(target in inodes for target in _open_files(process)):
            return f"process {process.name} ({_command(process)})"
    return ""


def _sockets(port: int) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _open_files(process: Path) -> Iterator[str]:
    try:
        for file in os.scandir(process / "fd"):
            yield os.readlink(file.path)
    except OSError:  # of another user, or gone
        return


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        words = ""
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
