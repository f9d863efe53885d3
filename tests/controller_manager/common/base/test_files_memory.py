"""Files in memory."""

import tempfile
from pathlib import Path

from controller_manager.common.base.files import memory_file


def test_memory_file_exists_in_context_without_disk(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with memory_file(b"one") as one, memory_file(b"two") as two:
        assert (Path(one).read_bytes(), Path(two).read_bytes()) == (b"one", b"two")
    assert not Path(one).exists()
