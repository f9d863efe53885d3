"""Who makes room when a site is full."""

from functools import partial

from controller_manager.serving.limits import ConnectionLimiter


class Dropped(list[str]):
    """Those who were dropped, in order."""

    def crowd(self, limit: int, *members: str) -> ConnectionLimiter:
        crowd = ConnectionLimiter(limit)
        for member in members:
            crowd.enter(member, partial(self.append, member))
        return crowd


def test_nobody_goes_while_there_is_room():
    dropped = Dropped()
    crowd = dropped.crowd(3, "a", "b")
    assert crowd.make_room()
    assert dropped == []


def test_whoever_was_waited_for_longest_goes():
    dropped = Dropped()
    crowd = dropped.crowd(3, "a", "b", "c")
    crowd.keep("a")
    crowd.wait_for("a")
    assert crowd.make_room()
    crowd.enter("d", partial(dropped.append, "d"))
    assert crowd.make_room()
    assert dropped == ["b", "c"]


def test_who_is_being_answered_stays():
    dropped = Dropped()
    crowd = dropped.crowd(2, "a", "b")
    crowd.keep("a")
    crowd.keep("b")
    assert not crowd.make_room()
    crowd.wait_for("b")
    assert crowd.make_room()
    assert dropped == ["b"]


def test_who_leaves_counts_no_more():
    dropped = Dropped()
    crowd = dropped.crowd(2, "a", "b")
    crowd.keep("a")
    crowd.leave("a")
    crowd.leave("b")
    crowd.leave("b")
    crowd.wait_for("a")
    assert not crowd.is_full
    crowd.keep("a")
    crowd.wait_for("a")
    assert not crowd.is_full
    assert dropped == []
