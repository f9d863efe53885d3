"""What breaks no rule is accepted, when it is made and when it is written again."""

from typing import Any


def test_valid_objects_of_every_kind_are_accepted(judge: Any) -> None:
    assert {name: judge(name, {}) for name in judge.names} == {name: [] for name in judge.names}


def test_valid_objects_can_be_updated(judge: Any) -> None:
    for part in ("", "status"):
        assert {name: judge.change(name, {}, {}, part) for name in judge.names} == {name: [] for name in judge.names}


def test_every_stored_kind_has_a_valid_object(judge: Any) -> None:
    stored = {name for name in judge._kinds if judge.kind(name).persisted and "create" in judge.kind(name).verbs}
    assert stored == set(judge.names)
