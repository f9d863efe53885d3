"""Private folders."""

import os
import stat
from pathlib import Path

import pytest

from controller_manager.common.base.files import private_folder, write_atomically

MARKS = frozenset({"ca.key"})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_new_folder_is_private(tmp_path):
    private_folder(tmp_path / "a", MARKS)
    write_atomically(tmp_path / "b" / "file", b"x")
    assert (mode(tmp_path / "a"), mode(tmp_path / "b")) == (0o700, 0o700)


@pytest.mark.parametrize("names", [(), ("ca.key", "other")])
def test_empty_or_own_folder_becomes_private(tmp_path, names):
    folder = tmp_path / "a"
    folder.mkdir(mode=0o755)
    for name in names:
        (folder / name).touch(0o644)
    private_folder(folder, MARKS)
    assert mode(folder) == 0o700
    assert {name: mode(folder / name) for name in names} == ({"ca.key": 0o600, "other": 0o644} if names else {})


def test_open_folder_with_foreign_files_is_refused(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "letter").touch(0o644)
    with pytest.raises(ValueError, match=r"home is open to others \(mode 0755\) .* chmod 0700"):
        private_folder(folder, MARKS)
    assert (mode(folder), mode(folder / "letter")) == (0o755, 0o644)


def test_private_folder_may_contain_other_files(tmp_path):
    (tmp_path / "letter").touch()
    tmp_path.chmod(0o700)
    private_folder(tmp_path, MARKS)
