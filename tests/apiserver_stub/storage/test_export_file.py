"""The export file: every row round-trips, and changed files are rejected."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.storage.exports.file import FORMAT, ExportedRow, ExportReader, ExportWriter, Header
from apiserver_stub.storage.interface import Unusable

PATH = Path("cluster.export")
NAME = "0123456789abcdef0123456789abcdef"
DATA = (
    b'{"metadata":{"name":"a","resourceVersion":""},"text":"\xc3\xa4"}',
    b"k8s:enc:aesgcm:v1:k:\x00\xff\n",
    b'{"text":"\xff"}',
    b'{"two":\n"lines"}',
    b"no object",
    b"",
)


def exported(rows: list[ExportedRow], revision: int = 7) -> bytes:
    file = io.BytesIO()
    writer = ExportWriter(file, Header(FORMAT, NAME, revision, "2026-01-02T03:04:05Z"))
    for row in rows:
        writer.add(row)
    writer.end()
    return file.getvalue()


def read_export(content: bytes) -> list[ExportedRow]:
    return [row for part in ExportReader(io.BytesIO(content), PATH).parts() for row in part]


def error_of(content: bytes) -> str:
    with pytest.raises(Unusable) as found:
        read_export(content)
    assert "\n" not in str(found.value)
    return str(found.value)


ROWS = [
    ExportedRow("pods", f"default/{number}", b'{"metadata":{"resourceVersion":""}}', number % 3)
    for number in range(2500)
]

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
rows_of = st.lists(
    st.builds(ExportedRow, texts, texts, st.sampled_from(DATA) | st.binary(max_size=30), st.integers(0, 9))
)


@given(rows_of)
def test_rows_round_trip(rows: list[ExportedRow]) -> None:
    assert read_export(exported(rows)) == rows


def test_file_is_read_in_complete_parts() -> None:
    parts = list(ExportReader(io.BytesIO(exported(ROWS)), PATH).parts())
    assert [len(part) for part in parts] == [1000, 1000, 500]
    assert [row for part in parts for row in part] == ROWS
    large = [ExportedRow("pods", str(number), b'{"text":"%b"}' % (b"x" * (3 << 20))) for number in range(3)]
    assert [len(part) for part in ExportReader(io.BytesIO(exported(large)), PATH).parts()] == [2, 1]


def test_file_is_json_lines() -> None:
    rows = [
        ExportedRow("pods", "a/b", b'{"metadata":{"resourceVersion":""}}', 60),
        ExportedRow("secrets", "a/s", DATA[1]),
    ]
    header, pod, secret, part, end = map(json.loads, exported(rows).splitlines())
    assert (header["export"], header["id"], header["revision"]) == (1, NAME, 7)
    assert pod | {"crc": 0} == {
        "resource": "pods",
        "key": "a/b",
        "ttl": 60,
        "data": {"metadata": {"resourceVersion": ""}},
        "crc": 0,
    }
    assert secret["bytes"] == "azhzOmVuYzphZXNnY206djE6azoA/wo="
    assert (part["part"], part["records"], end["end"], end["records"]) == (1, 2, True, 2)


@given(st.data())
def test_altered_byte_is_detected(data: st.DataObject) -> None:
    content = exported([ExportedRow("pods", f"default/{number}", one) for number, one in enumerate(DATA)])
    at = data.draw(st.integers(0, len(content) - 1))
    changed = content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
    error_of(changed)


@given(st.data())
def test_truncated_file_is_rejected(data: st.DataObject) -> None:
    content = exported([ExportedRow("pods", f"default/{number}", one) for number, one in enumerate(DATA)])
    error_of(content[: data.draw(st.integers(0, len(content) - 1))])


@given(st.data())
def test_missing_duplicated_or_swapped_lines_are_rejected(data: st.DataObject) -> None:
    lines = exported(ROWS[:30]).splitlines(keepends=True)
    one, other = sorted(data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True)))
    for changed in (
        lines[:one] + lines[other:],
        [*lines[:one], lines[one], *lines[one:]],
        [*lines[:one], lines[other], *lines[one + 1 : other], lines[one], *lines[other + 1 :]],
    ):
        if changed != lines:
            error_of(b"".join(changed))


def test_error_names_the_record() -> None:
    lines = exported(ROWS).splitlines(keepends=True)
    altered = [*lines[:5], lines[5].replace(b'"resourceVersion":""', b'"resourceVersion":"5"'), *lines[6:]]
    assert error_of(b"".join(altered)) == f"{PATH}: record 5 (pods default/4) is not as it was exported"
    altered = [*lines[:5], lines[5][3:], *lines[6:]]
    assert "what is behind record 4 (pods default/3) is not as" in error_of(b"".join(altered))
    assert "is truncated after record 4 (pods default/3)" in error_of(b"".join(lines[:5]) + lines[5][:-1])
    assert "records 1 to 999 are not as exported" in error_of(b"".join(lines[:5] + lines[6:]))
    assert "has data after its end" in error_of(b"".join(lines) + b"{}")
    assert error_of(b"something else") == f"{PATH} is not an export; create one with 'apiserver-stub export'"
    later = lines[0].replace(b'"export":1', b'"export":2')
    assert error_of(later) == f"{PATH} is an export of format 2, this program knows only 1"


def test_part_without_end_is_rejected_at_its_size_limit() -> None:
    lines = exported(ROWS).splitlines(keepends=True)
    assert "a part of an export ends before record 1001" in error_of(b"".join(lines[:1001] + lines[1002:]))
