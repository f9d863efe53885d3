"""Bytes under a path, for libraries that read nothing but files: where Linux is beneath, on no disk."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """The path of a file that only we can read and that is gone afterwards.

    So a private key leaves no trace, and a file system nobody may write to is no obstacle.
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
