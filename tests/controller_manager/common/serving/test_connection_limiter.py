"""Which connection is dropped when a server is full."""

from functools import partial

from controller_manager.common.serving.limits import ConnectionLimiter


class Dropped(list[str]):
    """The dropped connections, in order."""

    def limiter(self, limit: int, *members: str) -> ConnectionLimiter:
        limiter = ConnectionLimiter(limit)
        for member in members:
            limiter.enter(member, partial(self.append, member))
        return limiter


def test_below_limit_no_connection_is_dropped():
    dropped = Dropped()
    limiter = dropped.limiter(3, "a", "b")
    assert limiter.make_room()
    assert dropped == []


def test_longest_idle_connection_is_dropped():
    dropped = Dropped()
    limiter = dropped.limiter(3, "a", "b", "c")
    limiter.keep("a")
    limiter.wait_for("a")
    assert limiter.make_room()
    limiter.enter("d", partial(dropped.append, "d"))
    assert limiter.make_room()
    assert dropped == ["b", "c"]


def test_connection_being_answered_is_kept():
    dropped = Dropped()
    limiter = dropped.limiter(2, "a", "b")
    limiter.keep("a")
    limiter.keep("b")
    assert not limiter.make_room()
    limiter.wait_for("b")
    assert limiter.make_room()
    assert dropped == ["b"]


def test_closed_connections_do_not_count():
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
