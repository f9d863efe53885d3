"""Nothing is given twice and nothing is lost, whatever becomes of the writes (as a state machine)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from apiserver_stub.admission.allocator import Allocator

KEYS = st.sampled_from(["a", "b", "c"])
ITEMS = st.sets(st.integers(0, 5), max_size=3)


class Writes(RuleBasedStateMachine):
    """Writers who ask for what is free, writes that succeed or fail, and holders that go."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, set[int]] = {}
        self.under_way: dict[str, set[int]] = {}
        self.ledger = Allocator(lambda key: key in self.under_way, {0: "a"})

    @rule(key=KEYS, items=ITEMS)
    def submit(self, key: str, items: set[int]) -> None:
        """As a write does: there is one of a key at a time, and it asks before."""
        if key in self.under_way or not all(self.ledger.is_free(item, key) for item in items):
            return
        self.ledger.reserve(key, tuple(items))
        self.under_way[key] = items

    @rule(key=KEYS, items=ITEMS)
    def refused_after_the_promise(self, key: str, items: set[int]) -> None:
        if key not in self.under_way and all(self.ledger.is_free(item, key) for item in items):
            self.ledger.reserve(key, tuple(items))

    @rule(key=KEYS)
    def succeed(self, key: str) -> None:
        items = self.under_way.pop(key, None)
        if items is not None:
            self.stored[key] = items
            self.ledger.note(key, tuple(items))

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        self.under_way.pop(key, None)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        if key not in self.under_way:
            self.stored.pop(key, None)
            self.ledger.note(key, ())

    @invariant()
    def everything_is_held_once_and_nothing_is_lost(self) -> None:
        for item in range(6):
            holders = {k for held in (self.stored, self.under_way) for k, items in held.items() if item in items}
            assert len(holders) <= 1
            for key in "abc":
                allowed = holders <= {key} and (item != 0 or key == "a")
                assert self.ledger.is_free(item, key) is allowed

    @invariant()
    def promises_do_not_pile_up(self) -> None:
        assert len(self.ledger._promised) <= 3
        assert len(self.ledger._expecting) <= 6


TestWrites = Writes.TestCase
TestWrites.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
