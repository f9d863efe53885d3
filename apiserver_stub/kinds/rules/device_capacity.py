"""Validation of the capacity of a device and of how much of it a claim may request (`requestPolicy`, KEP-5075)."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.rules.combine import duplicates
from apiserver_stub.kinds.rules.device_parts import qualified_name
from apiserver_stub.kinds.rules.quantities import number

_MOST_VALUES = 10
_NONE = Decimal(0)


def check_capacity(device: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check all capacities of a device. A `requestPolicy` needs a device that allows multiple allocations."""
    shared, at = device.get("allowMultipleAllocations", False), (at, "capacity")
    for name, capacity in (device.get("capacity") or {}).items():
        qualified_name(name, at, errors)
        policy, there = capacity.get("requestPolicy"), ((at, key(name)), "requestPolicy")
        if policy is not None and not shared:
            errors.forbidden(there, "allowMultipleAllocations must be true")
        elif policy is not None:
            _policy(policy, _number(capacity.get("value")), there, errors)


def _number(quantity: Any) -> Decimal:
    return number(quantity or "") or _NONE


def _policy(policy: Any, most: Decimal, at: FieldPath, errors: ErrorList) -> None:
    values, bounds, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if values and bounds is not None:
        errors.forbidden(at, "may not have both validValues and validRange")
    elif (values or bounds is not None) and default is None:
        errors.required((at, "default"), "must be one of the values that are valid")
    elif values:
        _values(values, default, most, (at, "validValues"), errors)
    elif bounds is not None:
        _bounds(bounds, default, most, (at, "validRange"), errors)


def _values(values: Sequence[str], default: str, most: Decimal, at: FieldPath, errors: ErrorList) -> None:
    numbers = list(map(_number, values))
    for index in range(1, len(numbers)):
        if numbers[index - 1] > numbers[index]:
            errors.invalid((at, index), values[index], "must be in ascending order")
    if len(values) > _MOST_VALUES:
        errors.too_many(at, len(values), _MOST_VALUES)
    else:
        for index, value in enumerate(numbers):
            if value > most:
                errors.invalid((at, index), values[index], "must not be more than the capacity")
        for index, value in duplicates(map(_whole, numbers)):
            errors.duplicate((at, index), str(value))
    if len(values) > _MOST_VALUES or _number(default) not in numbers:
        errors.invalid(at, default, "must have the default value")


def _bounds(bounds: Any, default: str, most: Decimal, at: FieldPath, errors: ErrorList) -> None:
    if "min" not in bounds:
        errors.required((at, "min"))
        return
    low, first = _number(bounds["min"]), _number(default)
    high = _number(bounds["max"]) if "max" in bounds else None
    if low > most:
        errors.invalid((at, "min"), bounds["min"], "must not be more than the capacity")
    if first < low:
        errors.invalid((at, "min"), default, "the default must not be less than min")
    if high is not None:
        for broken, value, why in (
            (low > high, bounds["min"], "min must not be more than max"),
            (high > most, bounds["max"], "must not be more than the capacity"),
            (first > high, default, "the default must not be more than max"),
        ):
            if broken:
                errors.invalid((at, "max"), value, why)
    if "step" in bounds:
        _steps(bounds["step"], low, (first,) if high is None else (first, high), most, (at, "step"), errors)


def _steps(
    step: str, low: Decimal, reached: Sequence[Decimal], most: Decimal, at: FieldPath, errors: ErrorList
) -> None:
    """Check that one step stays within the capacity and that steps from min reach the default and max."""
    if low + _number(step) > most:
        errors.invalid(at, step, "one step must not lead beyond the capacity")
    whole = _whole(_number(step))
    if whole and any((_whole(value) - _whole(low)) % whole for value in reached):
        errors.invalid(at, step, "must lead from min to the default, and to max")


def _whole(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_CEILING))
