"""Who is cut off when too much waits for clients."""

from functools import partial

from controller_manager.common.serving.limits import Backlog


def test_whoever_has_been_waited_for_longest_is_cut_off_when_all_together_exceed_the_limit():
    cut: list[str] = []
    backlog = Backlog(100)
    for name in "abc":
        backlog.add(name, 30, partial(cut.append, name))
    backlog.remove("a")
    backlog.add("a", 30, partial(cut.append, "a"))  # it has taken something, and more waits
    assert cut == []
    backlog.add("d", 60, partial(cut.append, "d"))
    assert cut == ["b", "c"]
    assert backlog.held == 90


def test_one_alone_may_have_more():
    backlog = Backlog(100)
    backlog.add("a", 1000, lambda: None)
    assert backlog.held == 1000
    backlog.remove("a")
    backlog.remove("a")
    assert backlog.held == 0
