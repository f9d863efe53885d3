"""The specs of priority levels and schemas that every cluster has (KEP-1040, Default behavior)."""

from functools import cache
from typing import Any

import msgspec

from apiserver_stub.kinds.data import load

MANDATORY = frozenset({"exempt", "catch-all"})
"""Levels and schemas that always hold, and whose specs are fixed."""


class Specs(msgspec.Struct):
    """Specs of levels and schemas by name."""

    levels: dict[str, dict[str, Any]]
    schemas: dict[str, dict[str, Any]]


@cache
def suggested() -> Specs:
    """Return the specs of all of them."""
    return msgspec.convert(load("flow_control.json"), Specs)
