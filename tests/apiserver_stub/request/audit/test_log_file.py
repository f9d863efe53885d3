"""The audit log file: rotation, old files, and a full disk."""

import errno
import gzip
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apiserver_stub.request.audit.log_file import LogFile, Rotation, superfluous

NOW = datetime(2026, 1, 10, tzinfo=UTC)
NAME = re.compile(r"audit-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}\.log")


def run_inline(work: Callable[[], None]) -> None:
    work()


def opened(path: Path, rotation: Rotation = Rotation()) -> LogFile:  # noqa: B008
    file = LogFile(path, rotation, run_inline)
    file.open()
    return file


def test_lines_are_appended_to_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.log"
    for text in (b"one", b"two"):
        file = opened(path)
        assert file.write([text, text]) == {}
        file.close()
    assert path.read_bytes() == b"one\none\ntwo\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_full_file_is_renamed_with_timestamp(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = opened(path, Rotation(size=10))
    path.chmod(0o640)
    assert file.write([b"1234", b"5678", b"9abc"]) == {}
    old = [each for each in tmp_path.iterdir() if each != path]
    assert [bool(NAME.fullmatch(each.name)) for each in old] == [True]
    assert (old[0].read_bytes(), path.read_bytes()) == (b"1234\n5678\n", b"9abc\n")
    assert path.stat().st_mode & 0o777 == 0o640


def test_line_larger_than_file_limit_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = opened(path, Rotation(size=10))
    refused = file.write([b"a", b"x" * 10, b"b"])
    assert list(refused) == [1]
    assert path.read_bytes() == b"a\nb\n"


def test_backups_are_removed_and_compressed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    other = tmp_path / "audit-notes.log"
    other.write_text("kept")
    ancient = tmp_path / "audit-2001-01-01T00-00-00.000.log.gz"
    ancient.write_text("old")
    file = opened(path, Rotation(size=4, backups=5, days=3, compress=True))
    assert not ancient.exists()
    assert file.write([b"123"]) == {}
    assert file.write([b"456"]) == {}
    (packed,) = tmp_path.glob("*.gz")
    assert gzip.decompress(packed.read_bytes()) == b"123\n"
    assert NAME.fullmatch(packed.name.removesuffix(".gz"))
    assert other.read_text() == "kept"


def old(days: int, *, packed: bool = False) -> tuple[datetime, Path]:
    return NOW - timedelta(days=days), Path(f"audit-{days}.log" + (".gz" if packed else ""))


@pytest.mark.parametrize(
    ("rotation", "removed", "compressed"),
    [
        (Rotation(), [], []),
        (Rotation(backups=2), ["audit-3.log", "audit-9.log.gz"], []),
        (Rotation(days=5), ["audit-9.log.gz"], []),
        (Rotation(days=1), ["audit-2.log.gz", "audit-2.log", "audit-3.log", "audit-9.log.gz"], []),
        (Rotation(compress=True), [], ["audit-1.log", "audit-2.log", "audit-3.log"]),
        (Rotation(backups=2, compress=True), ["audit-3.log", "audit-9.log.gz"], ["audit-1.log", "audit-2.log"]),
    ],
)
def test_superfluous_backups(rotation: Rotation, removed: list[str], compressed: list[str]) -> None:
    """A file and its compressed form count once."""
    backups = [old(1), old(2, packed=True), old(2), old(3), old(9, packed=True)]
    gone, packed = superfluous(backups, rotation, NOW)
    assert [path.name for path in gone] == removed
    assert [path.name for path in packed] == compressed


class Disk:
    """A disk with room for a number of bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, file: int, data: memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = data[: self.room]
        self.room -= len(part)
        return self._write(file, part)

    _write = staticmethod(os.write)


def test_full_disk_rejects_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    file = opened(path)
    disk = Disk(room=7)
    monkeypatch.setattr("apiserver_stub.request.audit.log_file.os.write", disk.write)
    refused = file.write([b"one", b"two", b"three"])
    assert path.read_bytes() in (b"", b"one\n")
    assert set(refused.values()) == {"No space left on device"}
    disk.room = 100
    assert file.write([b"four"]) == {}
    assert path.read_bytes().splitlines()[-1] == b"four"
    written = path.read_bytes().count(b"\n") - 1
    assert written + len(refused) == 3


def test_processes_sharing_a_file_lose_no_line(tmp_path: Path) -> None:
    """Two of them, each with its own descriptor, write and rotate in turn."""
    path, rotation = tmp_path / "audit.log", Rotation(size=400, shared=True)
    files = [opened(path, rotation) for _ in range(2)]
    sent = [b"%d/%03d " % (number % 2, number) + b"x" * (number % 40) for number in range(200)]
    for number in range(0, 200, 2):
        for one, file in enumerate(files):
            assert file.write([sent[number + one]]) == {}
    found = [line for each in tmp_path.glob("audit*.log") for line in each.read_bytes().splitlines()]
    assert sorted(found) == sorted(sent)
    assert len(list(tmp_path.glob("audit-*.log"))) > 1
    assert max(each.stat().st_size for each in tmp_path.glob("audit*.log")) <= 400
