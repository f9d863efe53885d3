"""Feature gates: features that users may switch on and off, with the history of their stages."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from controller_manager.common.options.parse import did_you_mean

Version = tuple[int, int]
"""Major and minor version."""

GateStage = Literal["ALPHA", "BETA", "GA", "DEPRECATED"]
_ALL: Mapping[str, GateStage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}
_VALUES = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class Gate(msgspec.Struct, frozen=True):
    """A feature from version `since` on: its stage, its default, and whether the default is `locked`."""

    name: str
    stage: GateStage
    default: bool = False
    locked: bool = False
    since: Version = (1, 0)


def gates_at(history: Iterable[Gate], version: Version) -> list[Gate]:
    """Return the features of a version; without those that did not exist yet. `history` is in order of
    versions.
    """
    return list({gate.name: gate for gate in history if gate.since <= version}.values())


def resolve_gates(known: Iterable[Gate], given: Mapping[str, str]) -> dict[str, bool]:
    """Return whether each known feature is enabled, given the settings `given` of `--feature-gates`. The setting of a
    single gate takes precedence over AllAlpha and AllBeta.

    Raises `ValueError` for an unknown gate, a value that is not a boolean, or a feature that can no longer be
    switched.
    """
    gates = {gate.name: gate for gate in known}
    wanted = {name: _truth(name, value) for name, value in given.items()}
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
