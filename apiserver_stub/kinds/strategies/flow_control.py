"""The default PriorityLevelConfigurations and FlowSchemas of every cluster (KEP-1040, Default behavior)."""

from functools import cache
from typing import Any

import msgspec

from apiserver_stub.kinds.data import load

MANDATORY = frozenset({"exempt", "catch-all"})
"""Priority levels and flow schemas that always exist and whose specs are fixed."""


class Specs(msgspec.Struct):
    """Specs of priority levels and flow schemas by name."""

    levels: dict[str, dict[str, Any]]
    schemas: dict[str, dict[str, Any]]


@cache
def suggested() -> Specs:
    """Return all default specs."""
    return msgspec.convert(load("flow_control.json"), Specs)
