"""CEL as in Kubernetes 1.36: expressions are compiled against declared types and run as closures with a cost."""

from typing import TYPE_CHECKING

from controller_manager._moved_modules import moved_names
from controller_manager.common.cel.environment import Environment, Program
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    ListType,
    MapType,
    ObjectType,
)
from controller_manager.common.cel.values import CostBudget, CostExceeded, EvaluationError

__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "DURATION",
    "DYN",
    "INT",
    "STRING",
    "TIMESTAMP",
    "UINT",
    "CompileError",
    "CostBudget",
    "CostExceeded",
    "Environment",
    "EvaluationError",
    "ListType",
    "MapType",
    "ObjectType",
    "Program",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__ = moved_names(__name__)
