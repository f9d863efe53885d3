"""Feature gates: what a process can do that users may switch on and off, each with the stages it went through."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from controller_manager.common.options.parse import did_you_mean

Version = tuple[int, int]
"""Major and minor."""

GateStage = Literal["ALPHA", "BETA", "GA", "DEPRECATED"]
_ALL: Mapping[str, GateStage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}
_VALUES = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class Gate(msgspec.Struct, frozen=True):
    """One feature from one version on: its stage, whether it is on when nobody says, and whether anybody may."""

    name: str
    stage: GateStage
    default: bool = False
    locked: bool = False
    since: Version = (1, 0)


def gates_at(history: Iterable[Gate], version: Version) -> list[Gate]:
    """Return what each feature was at a version; without those that did not exist yet. `history` is in order of
    versions.
    """
    return list({gate.name: gate for gate in history if gate.since <= version}.values())


def resolve_gates(known: Iterable[Gate], said: Mapping[str, str]) -> dict[str, bool]:
    """Return which of the known features are on, as `said` has it (`--feature-gates`); a single gate outranks its
    stage.

    Raises `ValueError` with a sentence for a gate nobody knows, a value that is no truth value, or a feature that
    can no longer be switched.
    """
    gates = {gate.name: gate for gate in known}
    wanted = {name: _truth(name, value) for name, value in said.items()}
    for name, value in wanted.items():
        if name not in gates and name not in _ALL:
            raise ValueError(f"there is no feature gate {name}{did_you_mean(name, gates)}")
        if name in gates and gates[name].locked and gates[name].default != value:
            raise ValueError(f"the feature {name} can no longer be switched {'on' if value else 'off'}")
    by_stage = {stage: wanted[name] for name, stage in _ALL.items() if name in wanted}
    return {name: wanted.get(name, by_stage.get(gate.stage, gate.default)) for name, gate in gates.items()}


def _truth(name: str, value: str) -> bool:
    found = _VALUES.get(value.lower())
    if found is None:
        raise ValueError(f"the feature gate {name} is true or false, not {value!r}")
    return found
