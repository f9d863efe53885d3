"""Device selector expressions (KEP-4381): the variable `device`, and evaluation for a device.

| field of `device`          | value                                                                          |
|----------------------------|--------------------------------------------------------------------------------|
| `driver`                   | the name of its driver                                                         |
| `attributes`, `capacity`   | by domain (default: the driver) and identifier; an unknown domain is an        |
|                            | empty map                                                                      |
| `allowMultipleAllocations` | whether several claims may share it                                            |
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from controller_manager.common.api.devices import Device, DeviceAttribute, SelectorError
from controller_manager.common.cel.environment import Environment, Program, ProgramError
from controller_manager.common.cel.library import Estimate, quantity, semver
from controller_manager.common.cel.library.quantity import QuantityValue
from controller_manager.common.cel.macros import BINDINGS
from controller_manager.common.cel.sizes import SizePath, declared_sizes
from controller_manager.common.cel.syntax import CompileError
from controller_manager.common.cel.types import ANY, BOOL, STRING, MapType, ObjectType, runtime_name
from controller_manager.common.cel.values import CostBudget, CostExceeded, EvaluationError

MOST = 1_000_000
"""Cost limit of one evaluation."""
_KEPT = 512
_ENTRIES, _LONGEST_DOMAIN, _LONGEST_ID, _LONGEST_VALUE = 32, 63, 32, 64
_DOMAIN, _ID = STRING.bounded(_LONGEST_DOMAIN), STRING.bounded(_LONGEST_ID)
_DEVICE = ObjectType(
    "kubernetes.DRADevice",
    {
        "driver": STRING.bounded(_LONGEST_DOMAIN),
        "attributes": MapType(_DOMAIN, MapType(_ID, ANY.bounded(_LONGEST_VALUE), _ENTRIES), _ENTRIES),
        "capacity": MapType(_DOMAIN, MapType(_ID, QuantityValue.type, _ENTRIES), _ENTRIES),
        "allowMultipleAllocations": BOOL.bounded(1),
    },
)
_declared = declared_sizes(_DEVICE)
_ATTRIBUTE_PATH = 4  # variable, attributes, domain, name


class _Domains(dict[str, Any]):
    """A map from domains to names; an unknown domain is an empty map, except in tests for presence."""

    def __missing__(self, _: str) -> Any:
        return {}

    def get(self, key: str, _: Any = None) -> Any:
        return super().get(key, {})


def device_value(driver: str, device: Device) -> dict[str, Any]:
    """Return the value of a device in expressions. Raises `SelectorError` for an attribute of unknown type."""
    return {
        "driver": driver,
        "attributes": _by_domain(driver, {name: _value(name, one) for name, one in device.attributes.items()}),
        "capacity": _by_domain(driver, {name: quantity.parse(one.value) for name, one in device.capacity.items()}),
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }


def selects(expression: str, device: dict[str, Any]) -> tuple[bool, int]:
    """Return whether a device from `device_value` matches an expression, and the cost.

    Raises `SelectorError`.
    """
    program = _compiled(expression)
    if isinstance(program, str):
        raise SelectorError(f"CEL compile error: {program}")
    budget = CostBudget(MOST)
    try:
        found = program.evaluate({"device": device}, budget)
    except (EvaluationError, CostExceeded) as error:
        raise SelectorError(f"CEL runtime error: {error}") from None
    if type(found) is not bool:
        raise SelectorError("CEL runtime error: the result is no bool")
    return found, budget.spent


def problem_of(expression: str) -> str:
    """Return the compile error of an expression for messages; empty if there is none."""
    program = _compiled(expression)
    return program if isinstance(program, str) else ""


def may_exceed(expression: str) -> bool:
    """Return whether a valid expression may exceed `MOST` for some devices."""
    program = _compiled(expression)
    return not isinstance(program, str) and program.estimate(_sizes).max > MOST


@lru_cache(_KEPT)
def _compiled(expression: str) -> Program | str:
    """Return the compiled expression, or its error."""
    try:
        program = _environment().compile(expression)
    except ProgramError as error:
        return f"program instantiation failed: {error.issues[0].message}"
    except CompileError as error:
        return f"compilation failed: {error.display()}"
    if program.type not in (BOOL, ANY):
        return f"must evaluate to bool or the unknown type, not {runtime_name(program.type)}"
    return program


def _sizes(path: SizePath) -> Estimate | None:
    """Return the size of a path; attributes with any name have a bound."""
    if path[1:2] == ("attributes",) and len(path) == _ATTRIBUTE_PATH and not path[-1].startswith("@"):
        return Estimate(0, _LONGEST_VALUE)
    return _declared(path)


@lru_cache(1)
def _environment() -> Environment:
    return Environment.base().with_macros(BINDINGS).extend({"device": _DEVICE})


def _by_domain(driver: str, named: Mapping[str, Any]) -> _Domains:
    found = _Domains()
    for name, value in named.items():
        domain, slash, identifier = name.partition("/")
        found.setdefault(domain if slash else driver, {})[identifier if slash else domain] = value
    return found


def _value(name: str, attribute: DeviceAttribute) -> Any:
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is None:
        raise SelectorError(f"attribute {name}: unsupported attribute value")
    try:
        return semver.parse(attribute.version_value)
    except EvaluationError as error:
        raise SelectorError(f"attribute {name}: parse semantic version: {error}") from None
