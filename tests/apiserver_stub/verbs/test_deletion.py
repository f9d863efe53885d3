"""The effect of a delete request on an object, as a table and against a model (API concepts, States
and transitions).
"""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from apiserver_stub.kinds.strategies.strategy import Strategy
from apiserver_stub.verbs.deletion import begin_deletion, propagate
from controller_manager.common.api.timestamps import format_time, parse_time

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
PLAIN, ORPHANING, CHILDLESS = Strategy(), Strategy(dependents="Orphan"), Strategy(dependents="")
GRACEFUL = Strategy(grace_period=lambda tree, asked: tree["usual"] if asked is None else asked)
APART = Strategy(finalizers=("spec", "finalizers"))

Tree = dict[str, Any]


def timestamp(seconds: int) -> str:
    return format_time(NOW + timedelta(seconds=seconds))


def marked(grace: int | None, seconds: int, *finalizers: str) -> Tree:
    found: Tree = {"deletionTimestamp": timestamp(seconds)}
    if grace is not None:
        found["deletionGracePeriodSeconds"] = grace
    return found | ({"finalizers": list(finalizers)} if finalizers else {})


AS_IT_IS = "as it is"


@pytest.mark.parametrize(
    ("strategy", "metadata", "grace", "policy", "expected"),
    [
        # Live, of a kind without grace: removed unless a finalizer holds it.
        (PLAIN, {}, None, None, (True, {})),
        (PLAIN, {}, 30, None, (True, {})),
        (PLAIN, {"finalizers": ["x"]}, None, None, (False, marked(0, 0, "x"))),
        (PLAIN, {"finalizers": ["x"]}, 30, None, (False, marked(0, 0, "x"))),
        (PLAIN, {}, None, "Foreground", (False, marked(0, 0, "foregroundDeletion"))),
        (PLAIN, {}, None, "Orphan", (False, marked(0, 0, "orphan"))),
        (PLAIN, {"finalizers": ["orphan"]}, None, "Background", (True, {})),
        (PLAIN, {"finalizers": ["orphan"]}, None, None, (False, marked(0, 0, "orphan"))),
        (ORPHANING, {}, None, None, (False, marked(0, 0, "orphan"))),
        (ORPHANING, {}, None, "Background", (True, {})),
        (CHILDLESS, {"finalizers": ["orphan"]}, None, "Foreground", (True, {})),
        (PLAIN, {"generation": 3, "finalizers": ["x"]}, None, None, (False, {"generation": 4, **marked(0, 0, "x")})),
        (PLAIN, {"generation": 3}, None, None, (True, {"generation": 3})),
        # Live, of a kind with grace: always marked, and removed at once if the grace is zero.
        (GRACEFUL, {}, None, None, (False, marked(30, 30))),
        (GRACEFUL, {}, 7, None, (False, marked(7, 7))),
        (GRACEFUL, {}, -7, None, (False, marked(1, 1))),
        (GRACEFUL, {}, 0, None, (True, marked(0, 0))),
        (GRACEFUL, {"finalizers": ["x"]}, 0, None, (False, marked(0, 0, "x"))),
        (GRACEFUL, {"generation": 1}, 5, None, (False, {"generation": 2, **marked(5, 5)})),
        (GRACEFUL, {}, 1 << 40, None, (False, marked(1 << 31, 1 << 31))),
        # Marked, grace running: only a shorter one changes anything.
        (GRACEFUL, marked(30, 20), None, None, (False, AS_IT_IS)),
        (GRACEFUL, marked(30, 20), 30, "Foreground", (False, AS_IT_IS)),
        (GRACEFUL, marked(30, 20), 31, None, (False, AS_IT_IS)),
        (GRACEFUL, marked(30, 20), 5, None, (False, marked(5, -5))),
        (GRACEFUL, marked(30, 20), -5, None, (False, marked(1, -9))),
        (GRACEFUL, marked(30, 20), 5, "Foreground", (False, marked(5, -5, "foregroundDeletion"))),
        (GRACEFUL, marked(30, 20), 0, None, (True, marked(0, -10))),
        (GRACEFUL, marked(30, 20, "x"), 0, None, (False, marked(0, -10, "x"))),
        # Marked, grace over: only finalizers hold it.
        (PLAIN, marked(0, -60, "x"), None, None, (False, AS_IT_IS)),
        (PLAIN, marked(0, -60, "x"), 10, "Orphan", (False, marked(0, -60, "x", "orphan"))),
        (PLAIN, marked(0, -60, "x", "orphan"), None, "Background", (False, marked(0, -60, "x"))),
        (PLAIN, marked(0, -60, "foregroundDeletion"), None, "Background", (True, marked(0, -60))),
        (PLAIN, marked(0, -60, "foregroundDeletion"), None, "Orphan", (False, marked(0, -60, "orphan"))),
        (PLAIN, marked(0, -60), None, None, (True, AS_IT_IS)),
        (PLAIN, marked(None, -60, "x"), None, None, (False, marked(0, -60, "x"))),
    ],
)
def test_deletion_by_grace_finalizers_and_policy(
    strategy: Strategy, metadata: Tree, grace: int | None, policy: str | None, expected: tuple[bool, Any]
) -> None:
    """API concepts, States and transitions: live, finalizing and removed, for each kind of request."""
    tree: Tree = {"metadata": deepcopy(metadata), "usual": 30}
    removes, after = expected
    assert begin_deletion(tree, strategy, NOW, grace, policy) is removes
    assert tree["metadata"] == (metadata if after == AS_IT_IS else after)


@pytest.mark.parametrize(
    ("metadata", "held", "expected"),
    [
        ({}, ["k"], (False, marked(None, 0))),
        ({}, [], (False, marked(None, 0))),
        (marked(None, -60), ["k"], (False, AS_IT_IS)),
        (marked(None, -60), [], (True, AS_IT_IS)),
        (marked(None, -60, "x"), [], (False, marked(0, -60, "x"))),
    ],
)
def test_kind_with_spec_finalizers_is_marked_first(metadata: Tree, held: list[str], expected: Any) -> None:
    """API concepts, States and transitions, rule 2: the content of a namespace is deleted before the namespace."""
    tree: Tree = {"metadata": deepcopy(metadata), "spec": {"finalizers": held}}
    assert begin_deletion(tree, APART, NOW, None, "Foreground" if held and metadata else None) is expected[0]
    assert tree["metadata"] == (metadata if expected[1] == AS_IT_IS else expected[1])


finalizer_lists = st.lists(st.sampled_from(["a", "b", "orphan", "foregroundDeletion"]), unique=True)
policies = st.sampled_from([None, "Background", "Orphan", "Foreground"])


@settings(max_examples=150)
@given(finalizer_lists, st.sampled_from(["", "Background", "Orphan"]), policies)
def test_propagation_preserves_other_finalizers(before: list[str], usual: str, policy: str | None) -> None:
    after = propagate(before, usual, policy)
    assert [name for name in after if name in "ab"] == [name for name in before if name in "ab"]
    assert len({"orphan", "foregroundDeletion"} & set(after)) <= 1
    assert propagate(after, usual, policy) == after


class Deletion(RuleBasedStateMachine):
    """One object of a kind with grace, from its creation to its end, beside a simple model.

    The model: when the deletion is due, measured from the first request, and which finalizers hold the object.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tree: Tree = {"metadata": {"generation": 1}, "usual": 30}
        self.now = NOW
        self.gone = False
        self.first: datetime | None = None
        self.grace = 0
        self.held: set[str] = set()

    @precondition(lambda self: not self.gone)
    @rule(grace=st.sampled_from([None, -1, 0, 1, 5, 30, 60]), policy=policies)
    def delete(self, grace: int | None, policy: str | None) -> None:
        asked = 1 if grace == -1 else grace
        changes = True
        if self.first is None:
            self.first, self.grace = self.now, 30 if asked is None else asked
        elif self.grace:
            changes = asked is not None and asked < self.grace
            self.grace = asked if changes and asked is not None else self.grace
        if changes and policy:
            self.held -= {"orphan", "foregroundDeletion"}
            self.held |= {"Orphan": {"orphan"}, "Foreground": {"foregroundDeletion"}, "Background": set()}[policy]
        self.gone = begin_deletion(self.tree, GRACEFUL, self.now, grace, policy)
        assert self.gone == (changes and not self.grace and not self.held)

    @rule(seconds=st.integers(0, 20))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.first is None)
    @rule(name=st.sampled_from("xy"))
    def hold(self, name: str) -> None:
        self.held.add(name)
        self._write()

    @precondition(lambda self: self.held - {"orphan", "foregroundDeletion"} and (self.first is None or self.grace))
    @rule()
    def release(self) -> None:
        self.held -= set("xy")
        self._write()

    def _write(self) -> None:
        self.tree["metadata"]["finalizers"] = sorted(self.held)

    @invariant()
    def agrees(self) -> None:
        metadata = self.tree["metadata"]
        assert set(metadata.get("finalizers", ())) == self.held
        if self.first is None:
            assert "deletionTimestamp" not in metadata
            return
        assert metadata["deletionGracePeriodSeconds"] == self.grace
        assert parse_time(metadata["deletionTimestamp"]) == self.first + timedelta(seconds=self.grace)
        assert metadata["generation"] == 2


TestDeletion = Deletion.TestCase
TestDeletion.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
