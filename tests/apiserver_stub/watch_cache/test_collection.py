"""The window of recent changes: limited by time, count and bytes."""

import pytest

from apiserver_stub.storage.interface import TooOld
from apiserver_stub.watch_cache.collection import Retention, Window, oldest_first
from apiserver_stub.watch_cache.row import Change, Row


def change(revision: int, at: float = 0.0, size: int = 1) -> Change:
    return Change(Row("pods", "a", revision, b"x" * size), None, False, at)


def window(retention: Retention, *changes: Change) -> Window:
    made = Window(retention)
    for one in changes:
        made.append(one)
    return made


def revisions(found: Window, position: int, limit: int | None = None) -> list[int]:
    return [one.revision for one in found.since(position, limit)]


def test_position_is_first_change_after_revision() -> None:
    held = window(Retention(), change(3), change(5), change(9))
    assert [held.position(revision) for revision in (0, 3, 4, 5, 8, 9, 20)] == [0, 1, 1, 2, 2, 3, 3]
    assert revisions(held, 1) == [5, 9]
    assert revisions(held, 0, 2) == [3, 5]
    assert held.end == 3


def test_expired_changes_are_trimmed_and_positions_remain() -> None:
    held = window(Retention(seconds=10), change(3, at=100), change(5, at=105), change(9, at=111))
    assert [gone.revision for gone in held.trim(now=115)] == [3, 5]
    assert (held.first, held.end, held.trimmed) == (2, 3, 5)
    assert held.position(5) == 2
    assert revisions(held, 2) == [9]
    with pytest.raises(TooOld, match=r"4 \(5\)"):
        held.position(4)


@pytest.mark.parametrize("retention", [Retention(changes=2), Retention(size=20)])
def test_newest_changes_remain_if_count_or_size_is_exceeded(retention: Retention) -> None:
    held = window(retention, *(change(revision, size=10) for revision in range(1, 6)))
    held.trim(now=0)
    assert revisions(held, held.first) == [4, 5]
    assert held.trimmed == 3


def test_oldest_changes_of_all_windows_are_trimmed_first() -> None:
    pods = window(Retention(), *(change(revision, size=10) for revision in (1, 4, 5)))
    nodes = window(Retention(), *(change(revision, size=10) for revision in (2, 3, 6)))
    leases = window(Retention())
    every = (leases, pods, nodes)
    assert list(oldest_first(every, 0)) == []
    assert list(oldest_first(every, 1)) == [(pods, 1)]
    assert dict(oldest_first(every, 31)) == {pods: 2, nodes: 2}
    assert dict(oldest_first(every, 1000)) == {pods: 3, nodes: 3}
    for held, count in oldest_first(every, 31):
        held.forget(count)
    assert (revisions(pods, pods.first), revisions(nodes, nodes.first)) == ([5], [6])
    assert (pods.size, nodes.size, pods.trimmed, nodes.trimmed) == (10, 10, 4, 3)


def test_nothing_is_trimmed_within_limits() -> None:
    held = window(Retention(), change(1), change(2))
    assert held.trim(now=299) == ()
    assert (held.first, held.trimmed) == (0, 0)
