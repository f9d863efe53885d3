"""Valid objects are accepted on create and on update."""

from typing import Any


def test_valid_objects_of_every_kind_are_accepted(validator: Any) -> None:
    assert {name: validator(name, {}) for name in validator.names} == {name: [] for name in validator.names}


def test_valid_objects_can_be_updated(validator: Any) -> None:
    for part in ("", "status"):
        assert {name: validator.change(name, {}, {}, part) for name in validator.names} == {
            name: [] for name in validator.names
        }


def test_every_stored_kind_has_a_valid_object(validator: Any) -> None:
    stored = {
        name for name in validator._kinds if validator.kind(name).persisted and "create" in validator.kind(name).verbs
    }
    assert stored == set(validator.names)
