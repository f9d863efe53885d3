"""CEL as in Kubernetes 1.36: expressions are compiled against declared types and run as closures with a cost."""

from controller_manager.common.cel.environment import Environment, Program, ProgramError
from controller_manager.common.cel.syntax import CompileError, Issue
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
    Field,
    ListType,
    MapType,
    ObjectType,
    Type,
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
    "Field",
    "Issue",
    "ListType",
    "MapType",
    "ObjectType",
    "Program",
    "ProgramError",
    "Type",
]
