"""CEL expressions that select devices."""

from typing import Any

import msgspec
import pytest

from controller_manager.common.api.devices import Device, SelectorError
from controller_manager.common.cel.devices import device_value, selects

DEVICE = msgspec.json.decode(
    b"""{"name": "d", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "40Gi"}},
         "attributes": {"model": {"string": "x1"}, "numa": {"int": 1}, "fast": {"bool": true},
                        "k.org/version": {"version": "1.2.3"}}}""",
    type=Device,
)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ('device.driver == "d.org"', True),
        ('device.attributes["d.org"].model == "x1"', True),
        ('device.attributes["d.org"].numa > 1', False),
        ('device.attributes["d.org"].fast', True),
        ('device.attributes["k.org"].version.isGreaterThan(semver("1.2.0"))', True),
        ('device.capacity["d.org"].memory.compareTo(quantity("41Gi")) < 0', True),
        ("device.allowMultipleAllocations", True),
        ('"d.org" in device.attributes', True),
        ('"x.org" in device.attributes', False),
        ('has(device.attributes["x.org"].model)', False),
        ('device.attributes["x.org"].?model.orValue(true)', True),
        ('cel.bind(a, device.attributes["d.org"], a.fast && a.numa == 1)', True),
    ],
)
def test_device_selector_expressions(expression: str, found: bool) -> None:
    assert selects(expression, device_value("d.org", DEVICE))[0] is found


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1 +", "CEL compile error"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ("device.none", "undefined field 'none'"),
        ('device.attributes["d.org"].numa', "the result is no bool"),
        ('device.attributes["d.org"].none', "no such key: none"),
        ("device.attributes.all(a, device.attributes.all(b, a.bind(b, b)))", "CEL compile error"),
        ("[1, 2, 3, 4].all(a, " * 3 + '"x".matches("(x+x+)+y") || true' + ")" * 3, None),
    ],
)
def test_unusable_device_selector_raises_selector_error(expression: str, problem: str | None) -> None:
    if problem is None:
        assert selects(expression, device_value("d.org", DEVICE))[1] > 0
        return
    with pytest.raises(SelectorError) as error:
        selects(expression, device_value("d.org", DEVICE))
    assert problem in str(error.value)


def test_device_selector_has_a_cost_limit() -> None:
    numbers = ", ".join(map(str, range(60)))
    loops = "".join(f"[{numbers}].all({name}, " for name in "abcd")
    with pytest.raises(SelectorError, match="cost limit"):
        selects(f"{loops} a + b + c + d >= 0 {')' * 4}", device_value("d.org", DEVICE))


@pytest.mark.parametrize("attribute", [{}, {"version": "1"}])
def test_attribute_of_unknown_type_raises_selector_error(attribute: dict[str, Any]) -> None:
    device = msgspec.convert({"name": "d", "attributes": {"a": attribute}}, type=Device)
    with pytest.raises(SelectorError, match="attribute a: "):
        device_value("d.org", device)
