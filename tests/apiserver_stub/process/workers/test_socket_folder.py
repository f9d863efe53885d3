"""The folder of the storage socket is removed by its creator, or by the next process that creates one."""

import socket
from pathlib import Path

import pytest

from apiserver_stub.process.workers.socket_folder import socket_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def _listening(folder: Path) -> socket.socket:
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "store.sock"))
    listener.listen()
    return listener


def test_folder_is_private_and_removed_at_exit(tmp_path: Path) -> None:
    with socket_folder() as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_only_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    _listening(tmp_path / "apiserver-dead").close()
    living = _listening(tmp_path / "apiserver-living")
    (tmp_path / "apiserver-new").mkdir()  # whose socket does not exist yet
    kept = tmp_path / "apiserver-other"
    _listening(kept).close()
    (kept / "file").touch()
    with socket_folder() as path:
        left = {"apiserver-living", "apiserver-new", "apiserver-other"}
        assert {found.name for found in tmp_path.iterdir()} == {*left, path.parent.name}
        assert (kept / "file").exists()
    living.close()
