"""Reads recorded CEL expressions with their outcomes, and returns our outcomes in the same form."""

import base64
import math
from typing import Any

from controller_manager.common.cel.environment import Environment, ProgramError
from controller_manager.common.cel.library import UNBOUNDED
from controller_manager.common.cel.library.authorizer import AuthorizationCheck, AuthorizerValue, DecisionValue
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.times import format_duration, format_timestamp, parse_duration, parse_timestamp
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
    Type,
    WrapperType,
)
from controller_manager.common.cel.values import (
    CostBudget,
    CostExceeded,
    Duration,
    EvaluationError,
    Opaque,
    Optional,
    Timestamp,
    Uint,
    type_of,
)

_NAMED = {
    "dyn": DYN,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "bool": BOOL,
    "string": STRING,
    "bytes": BYTES,
    "timestamp": TIMESTAMP,
    "duration": DURATION,
    "authorizer": AuthorizerValue.type,
}


def decide(check: AuthorizationCheck) -> DecisionValue:
    """Answer like the authorizer that the rows were recorded with."""
    if check.verb == "fail":
        return DecisionValue(allowed=False, reason="r", error="broken")
    if check.verb == "get":
        return DecisionValue(allowed=True, reason=f"yes {check.path}{check.resource}")
    return DecisionValue(allowed=False, reason="no")


def type_named(name: str) -> Type:
    """Return the type of a name in the rows."""
    if name.startswith("list("):
        return ListType(type_named(name[5:-1]))
    if name.startswith("map("):
        key, _, value = name[4:-1].partition(",")
        return MapType(type_named(key), type_named(value.strip()))
    return _NAMED[name]


def value_of(raw: Any, declared: Type) -> Any:
    """Return the value that JSON in a row stands for."""
    readers = {
        UINT: Uint,
        DOUBLE: float,
        BYTES: base64.b64decode,
        TIMESTAMP: parse_timestamp,
        DURATION: parse_duration,
        AuthorizerValue.type: lambda _: AuthorizerValue(decide),
    }
    if declared in readers:
        return readers[declared](raw)
    if isinstance(raw, list) and declared.parameters:
        return [value_of(item, declared.parameters[0]) for item in raw]
    return raw


def outcome(row: dict[str, Any]) -> dict[str, Any]:
    """Return our outcome in the fields of a row."""
    types = {name: type_named(one) for name, one in row.get("types", {}).items()}
    try:
        program = Environment.base().extend(types).compile(row["expr"])
    except ProgramError as error:
        return {"phase": "program", "error": error.issues[0].message}
    except CompileError as error:
        issues = [{"line": i.line, "column": i.column, "message": i.message} for i in error.issues]
        return {"phase": "compile", "errors": issues, "error": error.display()}
    estimate = program.estimate()
    found: dict[str, Any] = {
        "phase": "run",
        "checked_type": _named(program.type),
        "estimated_cost": {
            "min": estimate.min,
            "max": "unbounded" if estimate.max == UNBOUNDED else estimate.max,
        },
    }
    budget = CostBudget()
    try:
        value = program.evaluate(
            {name: value_of(raw, types[name]) for name, raw in row.get("vars", {}).items()}, budget
        )
    except (EvaluationError, CostExceeded) as error:
        found["error"] = str(error)
    else:
        found["result"], found["result_type"] = shown(value), shown_type(value)
    found["cost"] = budget.spent
    return found


def shown(value: Any) -> Any:
    """Return a value as rows show it."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return format_timestamp(Timestamp(value.nanoseconds))
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, Optional):
        return {"optional": "of", "value": shown(value.value)} if value.present else {"optional": "none"}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: shown(item) for key, item in value.items()}
        entries = [[shown(key), shown(item)] for key, item in value.items()]
        return {"entries": sorted(entries, key=lambda entry: str(entry[0]))}
    if isinstance(value, Type):
        return value.name
    if isinstance(value, Opaque):
        return str(value)
    return int(value) if isinstance(value, Uint) else value


def shown_type(value: Any) -> str:
    """Return the deep type of a value as rows show it."""
    if isinstance(value, list):
        return f"list({_mixed(value)})"
    if isinstance(value, dict):
        return f"map({_mixed(value)},{_mixed(value.values())})"
    if isinstance(value, Optional):
        return f"optional_type({shown_type(value.value) if value.present else 'none'})"
    if isinstance(value, Type):
        return "type"
    return (
        type_of(value).name.removeprefix("google.protobuf.").lower()
        if isinstance(value, _TIMES)
        else type_of(value).name
    )


_TIMES = (Timestamp, Duration)


def _named(one: Type) -> str:
    parameters = ", ".join(map(_named, one.parameters))
    if isinstance(one, WrapperType):
        return str(one)
    return f"{one.name}({parameters})" if parameters else one.name


def _mixed(values: Any) -> str:
    return "|".join(sorted({shown_type(value) for value in values})) or "dyn"
