"""Feature gates: what a process can do that users may switch on and off, each with the stage it has reached."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

_Stage = Literal["ALPHA", "BETA", "GA"]
_ALL: Mapping[str, _Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}
_VALUES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature: its name, its stage, and whether it is on when nobody says."""

    name: str
    stage: _Stage
    default: bool = False


def resolve_gates(known: Iterable[Gate], said: Mapping[str, str]) -> dict[str, bool]:
    """Which of the known features are on, as `said` has it (`--feature-gates`); a single gate outranks its stage.

    Raises `ValueError` with a sentence for a gate nobody knows, a value that is no truth value, or a feature that
    can no longer be switched off.
    """
    gates = {gate.name: gate for gate in known}
    wanted = {name: _truth(name, value) for name, value in said.items()}
    for name in wanted:
        if name not in gates and name not in _ALL:
            raise ValueError(f"there is no feature gate {name}; known are {', '.join(sorted(gates))}")
    by_stage = {stage: wanted[name] for name, stage in _ALL.items() if name in wanted}
    found = {name: wanted.get(name, by_stage.get(gate.stage, gate.default)) for name, gate in gates.items()}
    for name, gate in gates.items():
        if gate.stage == "GA" and not found[name]:
            raise ValueError(f"the feature {name} is stable and cannot be switched off")
    return found


def _truth(name: str, value: str) -> bool:
    found = _VALUES.get(value.lower())
    if found is None:
        raise ValueError(f"the feature gate {name} is true or false, not {value!r}")
    return found
