"""Which features of this process are on, as `--feature-gates` and the version it emulates have it."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from typing import ClassVar, Self, cast

from pydantic import field_validator, model_validator

from controller_manager.api.platform import API_VERSION
from controller_manager.options import (
    Gate,
    Options,
    StringList,
    StringMultimap,
    Version,
    flag,
    gates_at,
    resolve_gates,
)
from controller_manager.options.gates import Stage

LOGGING_ALPHA = "LoggingAlphaOptions"
LOGGING_BETA = "LoggingBetaOptions"
REMOTE_UID = "RemoteRequestHeaderUID"
FLAGZ = "ComponentFlagz"
STATUSZ = "ComponentStatusz"
WATCH_LIST = "WatchListClient"
AUTOSCALER_TOLERANCE = "HPAConfigurableTolerance"
AUTOSCALER_TO_ZERO = "HPAScaleToZero"
TOLERATION_COMPARISON = "TaintTolerationComparisonOperators"

READ: Mapping[str, str] = {
    FLAGZ: "serves /flagz",
    STATUSZ: "serves /statusz",
    LOGGING_ALPHA: "allows the flags of logging that are alpha",
    LOGGING_BETA: "allows the forms of log lines that are beta",
    REMOTE_UID: "allows --requestheader-uid-headers",
    WATCH_LIST: "fills informers by streaming lists where the server offers them",
    AUTOSCALER_TOLERANCE: "heeds the tolerances that a horizontal pod autoscaler sets for itself",
    AUTOSCALER_TO_ZERO: "scales from and to zero by object and external metrics",
    TOLERATION_COMPARISON: "lets tolerations compare numbers when pods are evicted for taints",
}
"""What each gate that this process reads does; whoever reads another one adds it here."""

_COMPONENTS = ("", "kube")
_OLDEST_STEP = 3  # an emulated version is at most so many minors older
_VERSION = re.compile(r"(?:(?P<component>[^=]*)=)?v?(?P<major>\d+)\.(?P<minor>\d+)(?:\.0)?", re.ASCII)


class FeatureOptions(Options):
    """Features that are not on, or can be off."""

    title: ClassVar[str] = "Features"

    feature_gates: StringMultimap = flag(
        {},
        "features to switch on or off, as name=true or name=false, with 'kube:' in front or not; AllAlpha and AllBeta "
        f"speak for a whole stage. Read here: {', '.join(sorted(READ))}; all other gates of this version are accepted "
        "without effect",
    )
    emulated_version: StringList = flag(
        (),
        "version whose feature gates are offered, with their defaults and stages, as major.minor or kube=major.minor; "
        f"{API_VERSION} or at most {_OLDEST_STEP} minors older",
    )

    @field_validator("feature_gates")
    @classmethod
    def _are_settings(cls, value: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        _settings(value)
        return value

    @field_validator("emulated_version")
    @classmethod
    def _is_version(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        _emulated(value)
        return value

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        later = {gate.name for gate in known_gates()} - {gate.name for gate in self._offered}
        if too_new := sorted(later.intersection(self._said)):
            raise ValueError(f"--feature-gates: {too_new[0]} came later than --emulated-version")
        try:
            resolve_gates(self._offered, self._said)
        except ValueError as error:
            raise ValueError(f"--feature-gates: {error}") from None
        return self

    def enabled(self, gate: str) -> bool:
        """Whether a gate of `READ` is on; False in versions that did not have it."""
        if gate not in READ:
            raise KeyError(f"{gate} is not declared in READ")
        return self._on.get(gate, False)

    def read(self) -> Iterator[tuple[Gate, bool]]:
        """The gates of `READ` that this version has, and whether they are on."""
        return ((gate, self._on[gate.name]) for gate in self._offered if gate.name in READ)

    @property
    def version(self) -> Version:
        """The version that is emulated: by default our own."""
        return _emulated(self.emulated_version)

    def remarks(self) -> Iterator[str]:
        """What whoever set gates should know: those without effect, and those that will go away."""
        stages = {gate.name: gate.stage for gate in self._offered}
        for name in self._said:
            if name in stages and name not in READ:
                yield f"the feature gate {name} has no effect here"
            elif stages.get(name) in ("GA", "DEPRECATED"):
                yield f"the feature gate {name} will be removed in a later version"

    @cached_property
    def _on(self) -> Mapping[str, bool]:
        return resolve_gates(self._offered, self._said)

    @property
    def _offered(self) -> list[Gate]:
        return gates_at(known_gates(), self.version)

    @property
    def _said(self) -> Mapping[str, str]:
        return _settings(self.feature_gates)


@cache
def known_gates() -> tuple[Gate, ...]:
    """Every gate of every version up to ours, in order of versions."""
    names = json.loads(files(__package__).joinpath("gates.json").read_text())
    gates = [_gate(name, step) for name, steps in names.items() for step in steps.split(", ")]
    return tuple(sorted(gates, key=lambda gate: gate.since))


def _gate(name: str, step: str) -> Gate:
    """A gate from one step of its history, such as "1.34 GA on locked"."""
    since, stage, default, *locked = step.split()
    major, _, minor = since.partition(".")
    return Gate(name, cast("Stage", stage), default == "on", bool(locked), (int(major), int(minor)))


def _settings(gates: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    for component in gates:
        _check_component(component)
    pairs = [pair for component in _COMPONENTS for pair in gates.get(component, ())]
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise ValueError(f"{wrong[0]} needs a value, as in {wrong[0]}=true")
    split = (pair.partition("=") for pair in pairs)
    return {name.strip(): value.strip() for name, _, value in split}


def _emulated(said: tuple[str, ...]) -> Version:
    major, minor = (int(part) for part in API_VERSION.split("."))
    if not said:
        return major, minor
    found = _VERSION.fullmatch(said[0])
    if len(said) > 1 or found is None:
        raise ValueError(f"must be one version such as {API_VERSION} or kube={API_VERSION}")
    _check_component(found["component"] or "")
    version = int(found["major"]), int(found["minor"])
    if not (major, minor - _OLDEST_STEP) <= version <= (major, minor):
        raise ValueError(f"must be from {major}.{minor - _OLDEST_STEP} to {API_VERSION}")
    return version


def _check_component(name: str) -> None:
    if name not in _COMPONENTS:
        raise ValueError(f"there is no component {name}, only kube")
