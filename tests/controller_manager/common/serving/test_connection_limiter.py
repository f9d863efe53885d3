"""Who makes room when a server is full."""

from functools import partial

from controller_manager.common.serving.limits import ConnectionLimiter


class Dropped(list[str]):
    """Those who were dropped, in order."""

    def limiter(self, limit: int, *members: str) -> ConnectionLimiter:
        limiter = ConnectionLimiter(limit)
        for member in members:
            limiter.enter(member, partial(self.append, member))
        return limiter


def test_nobody_goes_while_there_is_room():
    dropped = Dropped()
    limiter = dropped.limiter(3, "a", "b")
    assert limiter.make_room()
    assert dropped == []


def test_whoever_was_waited_for_longest_goes():
    dropped = Dropped()
    limiter = dropped.limiter(3, "a", "b", "c")
    limiter.keep("a")
    limiter.wait_for("a")
    assert limiter.make_room()
    limiter.enter("d", partial(dropped.append, "d"))
    assert limiter.make_room()
    assert dropped == ["b", "c"]


def test_who_is_being_answered_stays():
    dropped = Dropped()
    limiter = dropped.limiter(2, "a", "b")
    limiter.keep("a")
    limiter.keep("b")
    assert not limiter.make_room()
    limiter.wait_for("b")
    assert limiter.make_room()
    assert dropped == ["b"]


def test_who_leaves_counts_no_more():
    dropped = Dropped()
    limiter = dropped.limiter(2, "a", "b")
    limiter.keep("a")
    limiter.leave("a")
    limiter.leave("b")
    limiter.leave("b")
    limiter.wait_for("a")
    assert not limiter.is_full
    limiter.keep("a")
    limiter.wait_for("a")
    assert not limiter.is_full
    assert dropped == []
