"""The newest revision of a storage in memory that several processes share: to know it costs them no message."""

import mmap
import os
import tempfile

_SIZE = 8


def new_page_file() -> int:
    """Return the descriptor of a file on no disk, where Linux is beneath, for the pages of several processes."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("revision")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, _SIZE)
    return file


class RevisionPage:
    """A number that one process sets and others read, in the same file: a word of the processor, so never half of it.

    `file` is a descriptor from `new_page_file`, which may be closed afterwards.
    """

    def __init__(self, file: int) -> None:
        self._word = memoryview(mmap.mmap(file, _SIZE)).cast("Q")

    @property
    def revision(self) -> int:
        """Return the revision that was set last."""
        return self._word[0]

    def set(self, revision: int) -> None:
        """Show a revision to all from now on."""
        self._word[0] = revision
