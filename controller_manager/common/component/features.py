"""Feature gates of a process (`--feature-gates`). A component declares the gates that it reads."""

import json
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import Any, ClassVar, Self, cast

from pydantic import field_validator, model_validator

from controller_manager.common.api.platform import API_VERSION
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.gates import Gate, GateStage, Version, gates_at, resolve_gates
from controller_manager.common.options.types import StringMultimap

LOGGING_ALPHA = "LoggingAlphaOptions"
LOGGING_BETA = "LoggingBetaOptions"
FLAGZ = "ComponentFlagz"
STATUSZ = "ComponentStatusz"

COMMON: Mapping[str, str] = MappingProxyType(
    {
        FLAGZ: "serves /flagz",
        STATUSZ: "serves /statusz",
        LOGGING_ALPHA: "allows the flags of logging that are alpha",
        LOGGING_BETA: "allows the forms of log lines that are beta",
    }
)
"""The effects of the gates that every component reads."""

OURS: Version = cast("Version", tuple(map(int, API_VERSION.split("."))))

_COMPONENTS = ("", "kube")


def feature_gates(effects: Mapping[str, str]) -> Any:
    """Declare the `--feature-gates` flag of a component that reads the gates `effects`."""
    return flag(
        {},
        "feature gates to enable or disable, as name=true or name=false, optionally prefixed with 'kube:'; AllAlpha "
        f"and AllBeta stand for a whole stage. Gates with an effect: {', '.join(sorted(effects))}; all other gates of "
        "this version are accepted without effect",
    )


class FeatureOptions(Options):
    """Feature gate flags. A component that reads more gates than `COMMON` extends this class with its own `effects` and
    `feature_gates`.
    """

    title: ClassVar[str] = "Features"
    effects: ClassVar[Mapping[str, str]] = COMMON
    """The effect of each gate that the component reads."""

    feature_gates: StringMultimap = feature_gates(COMMON)

    @field_validator("feature_gates")
    @classmethod
    def _are_settings(cls, value: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        _settings(value)
        return value

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        later = {gate.name for gate in known_gates()} - {gate.name for gate in self._offered}
        if too_new := sorted(later.intersection(self._given)):
            raise ValueError(f"--feature-gates: {too_new[0]} came later than --emulated-version")
        try:
            resolve_gates(self._offered, self._given)
        except ValueError as error:
            raise ValueError(f"--feature-gates: {error}") from None
        return self

    @property
    def version(self) -> Version:
        """Return the version whose gates are used, with their defaults and stages."""
        return OURS

    def enabled(self, gate: str) -> bool:
        """Return whether a gate is enabled; False in versions without the gate."""
        if gate not in self.effects:
            raise KeyError(f"{type(self).__module__} does not declare {gate}")
        return self._on.get(gate, False)

    def read(self) -> Iterator[tuple[Gate, bool]]:
        """Yield the gates of this version that the component reads, and whether they are enabled."""
        return ((gate, self._on[gate.name]) for gate in self._offered if gate.name in self.effects)

    def remarks(self) -> Iterator[str]:
        """Yield a warning for each given gate that has no effect or will be removed."""
        stages = {gate.name: gate.stage for gate in self._offered}
        for name in self._given:
            if name in stages and name not in self.effects:
                yield f"the feature gate {name} has no effect here"
            elif stages.get(name) in ("GA", "DEPRECATED"):
                yield f"the feature gate {name} will be removed in a later version"

    @cached_property
    def _on(self) -> Mapping[str, bool]:
        return resolve_gates(self._offered, self._given)

    @property
    def _offered(self) -> list[Gate]:
        return gates_at(known_gates(), self.version)

    @property
    def _given(self) -> Mapping[str, str]:
        return _settings(self.feature_gates)


@cache
def known_gates() -> tuple[Gate, ...]:
    """Return every gate of every version up to ours, in order of versions."""
    names = json.loads(files(__package__).joinpath("gates.json").read_text())
    gates = [_gate(name, step) for name, steps in names.items() for step in steps.split(", ")]
    return tuple(sorted(gates, key=lambda gate: gate.since))


def check_component(name: str) -> None:
    """Raise ValueError for an unknown component in `--feature-gates` or `--emulated-version`."""
    if name not in _COMPONENTS:
        raise ValueError(f"there is no component {name}, only kube")


def _gate(name: str, step: str) -> Gate:
    """Parse one step of the history of a gate, such as "1.34 GA on locked"."""
    since, stage, default, *locked = step.split()
    major, _, minor = since.partition(".")
    return Gate(name, cast("GateStage", stage), default == "on", bool(locked), (int(major), int(minor)))


def _settings(gates: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    for component in gates:
        check_component(component)
    pairs = [pair for component in _COMPONENTS for pair in gates.get(component, ())]
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise ValueError(f"{wrong[0]} needs a value, as in {wrong[0]}=true")
    split = (pair.partition("=") for pair in pairs)
    return {name.strip(): value.strip() for name, _, value in split}
