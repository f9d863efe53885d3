"""Copies of values of a patch: what was patched is changed further in place, and the patch may be applied again."""

from typing import Any


def copied(value: Any) -> Any:
    """A copy that shares no object and no array with `value`."""
    if type(value) is dict:
        return {name: copied(item) for name, item in value.items()}
    if type(value) is list:
        return [copied(item) for item in value]
    return value
