"""Feature gates set by users."""

import pytest

from controller_manager.common.options.gates import Gate, resolve_gates

KNOWN = (Gate("Fresh", "ALPHA"), Gate("Tried", "BETA", default=True), Gate("Sure", "GA", default=True, locked=True))


@pytest.mark.parametrize(
    ("gates", "fresh", "tried"),
    [
        ({}, False, True),
        ({"Fresh": "true"}, True, True),
        ({"Tried": "False"}, False, False),
        ({"AllAlpha": "true"}, True, True),
        ({"AllBeta": "false"}, False, False),
        ({"AllBeta": "false", "Tried": "true"}, False, True),
        ({"AllAlpha": "true", "Fresh": "false"}, False, True),
    ],
)
def test_gate_overrides_stage_and_stage_overrides_default(gates: dict[str, str], fresh: bool, tried: bool) -> None:
    assert resolve_gates(KNOWN, gates) == {"Fresh": fresh, "Tried": tried, "Sure": True}


@pytest.mark.parametrize(
    ("gates", "problem"),
    [
        ({"Unheard": "true"}, "there is no feature gate Unheard"),
        ({"Fresh": "maybe"}, "the feature gate Fresh is true or false, not 'maybe'"),
        ({"Sure": "false"}, "the feature Sure can no longer be switched off"),
        ({"Tryed": "true"}, "there is no feature gate Tryed; did you mean Tried"),
    ],
)
def test_invalid_gates_are_refused(gates: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        resolve_gates(KNOWN, gates)
