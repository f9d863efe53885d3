"""Which client is cut off when too much output is unread."""

from functools import partial

from controller_manager.common.serving.limits import Backlog


def test_longest_waiting_client_is_cut_off_above_limit():
    cut: list[str] = []
    backlog = Backlog(100)
    for name in "abc":
        backlog.add(name, 30, partial(cut.append, name))
    backlog.remove("a")
    backlog.add("a", 30, partial(cut.append, "a"))  # it has read some data, and more is waiting
    assert cut == []
    backlog.add("d", 60, partial(cut.append, "d"))
    assert cut == ["b", "c"]
    assert backlog.held == 90


def test_single_client_may_exceed_limit():
    backlog = Backlog(100)
    backlog.add("a", 1000, lambda: None)
    assert backlog.held == 1000
    backlog.remove("a")
    backlog.remove("a")
    assert backlog.held == 0
