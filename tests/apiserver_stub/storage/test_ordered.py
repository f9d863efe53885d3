"""The ordered map compared with a dict, and its snapshots with copies of that dict."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from apiserver_stub.storage.ordered import OrderedMap, View

NAMES = st.builds(
    lambda namespace, name: f"{namespace}/{name}", st.sampled_from(["a", "ab", "b", "\U0010ffff"]), st.integers(0, 3000)
)
RANGES = st.sampled_from(["", "a", "a/", "ab/", "b/1", "b/2", "c", "\U0010ffff", "\U0010ffff/9"])


def expected(model: dict[str, int], after: str, prefix: str) -> list[int]:
    return [model[key] for key in sorted(model) if key > after and key.startswith(prefix)]


class Machine(RuleBasedStateMachine):
    """Random changes, with snapshots taken and checked in between."""

    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.map: OrderedMap[int] = OrderedMap()
        self.model: dict[str, int] = {}
        self.taken: list[tuple[View[int], dict[str, int]]] = []

    @rule(key=NAMES, value=st.integers())
    def put(self, key: str, value: int) -> None:
        self.map.put(key, value)
        self.model[key] = value

    @rule(start=st.integers(0, 2000), count=st.integers(1, 1500), namespace=st.sampled_from(["a", "b"]))
    def put_many(self, start: int, count: int, namespace: str) -> None:
        for number in range(start, start + count):
            self.put(f"{namespace}/{number}", number)

    @rule(key=NAMES)
    def remove(self, key: str) -> None:
        self.map.remove(key)
        self.model.pop(key, None)

    @rule(prefix=RANGES, keep=st.integers(1, 5))
    def remove_many(self, prefix: str, keep: int) -> None:
        for key in sorted(key for key in self.model if key.startswith(prefix))[keep:]:
            self.remove(key)

    @rule()
    def snapshot(self) -> None:
        self.taken = [*self.taken[-3:], (self.map.snapshot(), self.model.copy())]

    @rule()
    def continue_with_copy(self) -> None:
        self.map = OrderedMap.copy(self.map.snapshot())

    @rule()
    def continue_with_rebuilt_map(self) -> None:
        self.map = OrderedMap(sorted(self.model.items()))

    @rule(key=NAMES)
    def get(self, key: str) -> None:
        assert self.map.get(key) == self.model.get(key)

    @rule(after=st.one_of(RANGES, NAMES), prefix=RANGES)
    def read(self, after: str, prefix: str) -> None:
        wanted = expected(self.model, after, prefix)
        assert list(self.map.items(after, prefix)) == wanted
        assert self.map.count(after, prefix) == len(wanted)

    @invariant()
    def same_content(self) -> None:
        assert len(self.map) == len(self.model)
        assert list(self.map.items()) == expected(self.model, "", "")

    @invariant()
    def snapshots_stay(self) -> None:
        for view, model in self.taken:
            assert list(view.items()) == expected(model, "", "")
            assert len(view) == len(model)


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestOrderedMap = Machine.TestCase


def test_snapshot_copies_nothing_and_change_copies_one_chunk() -> None:
    numbers = OrderedMap((f"{number:06}", number) for number in range(100_000))
    view = numbers.snapshot()
    assert view._chunks is numbers._chunks
    numbers.put("050000", -1)
    shared = sum(before is after for before, after in zip(view._chunks, numbers._chunks, strict=True))
    assert shared == len(view._chunks) - 1
    assert view.get("050000") == 50_000
    assert numbers.get("050000") == -1


def test_deleting_most_keys_leaves_few_chunks() -> None:
    numbers = OrderedMap((f"{number:06}", number) for number in range(20_000))
    for number in range(20_000):
        if number % 100:
            numbers.remove(f"{number:06}")
    assert len(numbers) == 200
    assert len(numbers._chunks) < 10
