"""Managed fields: what a client may send, what an update changes, and limits."""

import copy
from typing import Any

import pytest

from apiserver_stub.patch.field_set import difference, of, union
from apiserver_stub.patch.managed_fields import FieldManager, ManagedFieldsEntry, accepted, fields_of, updated
from apiserver_stub.patch.typed import FieldChanges

A, B, C = (of(("f:spec", f"f:{name}")) for name in "abc")
NOW = "2026-01-01T00:00:09Z"


def entry(
    manager: str, fields: Any, operation: str = "Update", version: str = "v1", time: int = 0, **more: str
) -> ManagedFieldsEntry:
    author = FieldManager(manager, operation, version)
    return {**author.entry(fields, f"2026-01-01T00:00:{time:02}Z"), **more}


def fields_by_manager(entries: list[ManagedFieldsEntry]) -> dict[str, Any]:
    return {found["manager"]: fields_of(found) for found in entries}


def write(
    entries: list[ManagedFieldsEntry], manager: str, changed: Any = None, removed: Any = None, part: str = ""
) -> list[ManagedFieldsEntry]:
    before = copy.deepcopy(entries)
    changes = FieldChanges(changed, removed)
    found = updated(entries, FieldManager(manager, "Update", "v1", part), lambda v: changes if v == "v1" else None, NOW)
    assert entries == before
    return found


LIVE = [entry("one", A)]
SENT = [entry("two", B)]


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (None, LIVE),
        (LIVE, LIVE),
        (SENT, SENT),
        ([], []),
        ([{}], []),
        ([{}, {}], LIVE),
        ([entry("two", B, operation="Guess")], LIVE),
        ([entry("two", B, version="")], LIVE),
        ([entry("two", B, fieldsType="FieldsV2")], LIVE),
        ([entry("two", {"spec": {}})], LIVE),
        ([entry("x" * 129, B)], LIVE),
        ([entry("a\n", B)], LIVE),
        ([entry("two", B, subresource="x" * 257)], LIVE),
        ([{"manager": "two"}], LIVE),
        ([entry("two", {'k:{"b":1, "a":2}': {}})], [entry("two", {'k:{"a":2,"b":1}': {}})]),
        ([entry("two", A), entry("two", B)], SENT),
    ],
)
def test_managed_fields_sent_by_client_are_accepted_or_ignored(sent: Any, found: list[ManagedFieldsEntry]) -> None:
    """Server-side apply (KEP-555): readable managed fields count, empty ones reset ownership, others are ignored."""
    assert accepted(sent, LIVE) == found


def test_unchanged_update_records_nothing() -> None:
    assert write(LIVE, "one") is LIVE


def test_changed_fields_move_to_the_writer() -> None:
    after = write([entry("one", union(A, B)), entry("three", C, "Apply")], "two", union(A, C))
    assert fields_by_manager(after) == {"one": B, "two": union(A, C)}
    assert [found["time"] for found in after] == ["2026-01-01T00:00:00Z", NOW]


def test_removed_fields_have_no_owner() -> None:
    assert fields_by_manager(write([entry("one", union(A, B)), entry("two", A)], "two", removed=A)) == {"one": B}


def test_entry_per_manager_version_operation_and_subresource() -> None:
    entries = [
        entry("one", A),
        entry("one", A, "Apply"),
        entry("one", A, version="v0"),
        entry("one", A, subresource="status"),
    ]
    after = write(entries, "one", B)
    assert [(e["operation"], e["apiVersion"], e.get("subresource"), fields_of(e)) for e in after] == [
        ("Apply", "v1", None, A),
        ("Update", "v1", "status", A),
        ("Update", "v1", None, union(A, B)),
    ]
    assert fields_of(write(entries, "one", B, part="status")[-1]) == union(A, B)


def test_entries_of_unknown_versions_are_dropped() -> None:
    assert fields_by_manager(write([entry("old", A, version="v0"), entry("one", A)], "two", B)) == {"one": A, "two": B}


def test_updates_beyond_ten_are_merged() -> None:
    """KEP-555: ten entries of updates are kept separate."""
    fields = [of(("f:spec", f"f:{number}")) for number in range(14)]
    entries = [entry("applier", of(("f:x",)), "Apply")]
    entries += [entry(f"m{number}", fields[number], time=number) for number in range(10)]
    after = write(entries, "m10", fields[10])
    assert len(after) == 11
    assert fields_by_manager(after)["ancient-changes"] == union(fields[0], fields[1])
    assert {"m2", "m9", "m10", "applier"} < fields_by_manager(after).keys()
    after = write(after, "m11", fields[11])
    assert fields_by_manager(after)["ancient-changes"] == union(union(fields[0], fields[1]), fields[2])
    assert len(after) == 11


def test_updates_are_merged_within_their_version() -> None:
    entries = [entry(f"m{n}", of(("f:spec", f"f:{n}")), version="v1" if n % 2 else "v2", time=n) for n in range(10)]
    changes = FieldChanges(A, None)
    after = updated(entries, FieldManager("new", "Update", "v1"), lambda _: changes, NOW)
    found = [(e["manager"], e["apiVersion"], fields_of(e)) for e in after if e["manager"] == "ancient-changes"]
    assert found == [("ancient-changes", "v2", of(("f:spec", "f:0"), ("f:spec", "f:2")))]
    assert len(after) == 10


def test_entries_are_sorted_by_operation_then_time() -> None:
    entries = [entry("b", A, time=3), entry("a", B, time=5), entry("z", C, "Apply", time=7)]
    after = write(entries, "y", of(("f:y",)))
    assert [found["manager"] for found in after] == ["z", "b", "a", "y"]
    assert difference(fields_by_manager(after)["b"], A) == {}
