"""The newest revision of a storage in shared memory, so that reading it needs no message."""

import mmap
import os
import tempfile

_SIZE = 8


def new_page_file() -> int:
    """Return the descriptor of a file for shared pages; on Linux it is in memory only."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("revision")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, _SIZE)
    return file


class RevisionPage:
    """A number that one process sets and others read in a shared file. It is one machine word, so reads are never torn.
    `file` is a descriptor from `new_page_file`, which may be closed afterwards.
    """

    def __init__(self, file: int) -> None:
        self._word = memoryview(mmap.mmap(file, _SIZE)).cast("Q")

    @property
    def revision(self) -> int:
        """Return the last revision that was set."""
        return self._word[0]

    def set(self, revision: int) -> None:
        """Publish a revision."""
        self._word[0] = revision
