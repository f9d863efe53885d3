"""How many answers are cached, and for how long."""

from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.serving.answers import Remembered


def test_oldest_entry_is_evicted():
    answers: Remembered[int] = Remembered(2)
    for number, name in enumerate((b"a", b"b", b"c")):
        answers.keep(name, number, until=10)
    assert [answers.find(name, 0) for name in (b"a", b"b", b"c")] == [None, (1,), (2,)]
    assert answers.find(b"c", 10) is None


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(), st.integers(0, 9))))
def test_find_returns_latest_unexpired_answer(kept):
    answers: Remembered[int] = Remembered(3)
    last: dict[bytes, tuple[int, int]] = {}
    for now, (question, answer, lifetime) in enumerate(kept):
        answers.keep(question, answer, until=now + lifetime)
        last[question] = (answer, now + lifetime)
        assert len(answers._answers) <= 3
        for asked in last:
            found = answers.find(asked, now)
            assert found is None or (found[0] == last[asked][0] and now < last[asked][1])
        assert answers.find(question, now) == ((answer,) if lifetime else None)
