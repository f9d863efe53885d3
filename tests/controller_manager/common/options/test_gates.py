"""Feature gates: what users say about them, and what follows."""

import pytest

from controller_manager.common.options.gates import Gate, resolve_gates

KNOWN = (Gate("Fresh", "ALPHA"), Gate("Tried", "BETA", default=True), Gate("Sure", "GA", default=True, locked=True))


@pytest.mark.parametrize(
    ("said", "fresh", "tried"),
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
def test_a_gate_outranks_its_stage_and_the_stage_its_default(said: dict[str, str], fresh: bool, tried: bool) -> None:
    assert resolve_gates(KNOWN, said) == {"Fresh": fresh, "Tried": tried, "Sure": True}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"Unheard": "true"}, "there is no feature gate Unheard"),
        ({"Fresh": "maybe"}, "the feature gate Fresh is true or false, not 'maybe'"),
        ({"Sure": "false"}, "the feature Sure can no longer be switched off"),
        ({"Tryed": "true"}, "there is no feature gate Tryed; did you mean Tried"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(said: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        resolve_gates(KNOWN, said)
