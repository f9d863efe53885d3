"""Computes the capacity of a shared device that a claim consumes (KEP-5075); pure.

Without a request the default of the capacity's policy is consumed, else all of it. A request is rounded up to the next
valid value or step of the policy.
"""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from controller_manager.common.api.devices import CapacityRequestPolicy, CapacityRequirements, DeviceCapacity
from controller_manager.common.api.quantity import Quantity, parse


def consumption(
    asked: CapacityRequirements | None, capacities: Mapping[str, DeviceCapacity]
) -> Mapping[str, Quantity] | None:
    """Return the consumed amount of each capacity, or None if the device cannot provide it."""
    wanted = asked.requests if asked is not None else {}
    if not wanted.keys() <= capacities.keys():
        return None
    found = {}
    for name, capacity in capacities.items():
        amount = _consumed(wanted.get(name), capacity)
        if amount is None:
            return None
        found[name] = amount
    return found


def _consumed(asked: str | None, capacity: DeviceCapacity) -> Quantity | None:
    policy = capacity.request_policy
    if policy is None:
        return parse(capacity.value if asked is None else asked)
    default = parse(policy.default) if policy.default is not None else None
    amount = (default or parse(capacity.value)) if asked is None else _rounded_up(parse(asked), policy)
    if (default is not None and amount.number == default.number) or _is_valid(amount.number, policy):
        return amount
    return None


def _rounded_up(asked: Quantity, policy: CapacityRequestPolicy) -> Quantity:
    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        least = parse(limits.min)
        if asked.number < least.number:
            return least
        if limits.step is None:
            return asked
        step, first = parse(limits.step).number, _whole(least.number)
        steps = ((_whole(asked.number) - first) / step).to_integral_value(ROUND_CEILING)
        return Quantity(first + steps * step, "binary")
    for value in map(parse, policy.valid_values):
        if asked.number <= value.number:
            return value
    return asked


def _is_valid(amount: Decimal, policy: CapacityRequestPolicy) -> bool:
    limits = policy.valid_range
    if limits is None:
        return not policy.valid_values or any(amount == parse(value).number for value in policy.valid_values)
    if limits.max is not None and amount > parse(limits.max).number:
        return False
    if limits.step is None:
        return True
    first = _whole(parse(limits.min).number) if limits.min is not None else Decimal(0)
    return not (_whole(amount) - first) % _whole(parse(limits.step).number)


def _whole(number: Decimal) -> Decimal:
    return number.to_integral_value(ROUND_CEILING)
