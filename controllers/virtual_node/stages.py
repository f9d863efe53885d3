"""The stages of a container's lifecycle as data: conditions, delays and results."""

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.options.types import parse_duration
from controller_manager.framework import ConfigError

from .pods import Container, ContainerKind, ContainerStatus, Probe, VirtualPod

DOMAIN = f"virtual-node.x-{GROUP_DOMAIN}"
STATES = ("waiting", "blocked", "running", "started", "ready", "terminated", "back-off", "stopping")
_TARGETS = ("blocked", "running", "started", "ready", "terminated", "killed", "back-off")
STARTED_AFTER, UNHEALTHY_AFTER = f"{DOMAIN}/started-after", f"{DOMAIN}/unhealthy-after"
"""The annotations with the seconds after start from which startup probes succeed and liveness probes fail."""
_FIRST_BACK_OFF, _LONGEST_BACK_OFF = 10.0, 300.0
_LONG_RUN = 2 * _LONGEST_BACK_OFF
"""A run of at least this many seconds resets the restart backoff."""
# Shell commands that determine the duration and the exit code of a command.
_SLEEP = re.compile(r"(?<![\w-])sleep\s+(\d{1,8}|inf(?:inity)?)(?![\w.])")
_EXIT = re.compile(r"(?<![\w-])exit\s+(\d{1,3})(?!\w)|(?<![\w-])(false)(?![\w-])")
_SEARCHED = 64 * 1024  # characters of a command line in which `sleep` and `exit` are looked for
_LONGEST_DURATION = 64  # characters of an annotation that is a duration
_ANY = "*"
_NEVER = "never"
_COMMAND = "command"


class StageSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A stage as configured; `stages.yaml` documents the fields."""

    name: str
    from_: tuple[str, ...] = msgspec.field(name="from")
    to: str
    of: tuple[ContainerKind, ...] = ()
    selector: str = ""
    annotations: Mapping[str, str] = {}
    namespaces: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    min_restarts: int = 0
    max_restarts: int | None = None
    delay: str = "0s"
    jitter: str = "0s"
    delay_from: str = ""
    exit_code: int = 0
    exit_code_from: str = ""
    reason: str = ""
    message: str = ""
    event: str = ""


class LifecycleStage:
    """A stage of containers. Raises ValueError for an invalid spec."""

    def __init__(self, spec: StageSpec) -> None:
        self.spec = spec
        self.name, self.to = spec.name, spec.to
        unknown = [one for one in spec.from_ if one not in STATES]
        if unknown or not spec.from_:
            raise ValueError(f"from: {', '.join(unknown) or 'nothing'} is none of {', '.join(STATES)}")
        if spec.to not in _TARGETS:
            raise ValueError(f"to: {spec.to} is none of {', '.join(_TARGETS)}")
        try:
            self._selector = LabelSelector.parse(spec.selector)
        except BadRequest as error:
            raise ValueError(f"selector: {error.message}") from None
        self._delay, self._jitter = _seconds(spec.delay, "delay"), _seconds(spec.jitter, "jitter")

    def without_delay(self) -> "LifecycleStage":
        """Return the stage without delay, unless its delay is infinite."""
        delay = self.spec.delay if self.spec.delay == _NEVER else "0s"
        return LifecycleStage(msgspec.structs.replace(self.spec, delay=delay, jitter="0s"))

    def fits_pod(self, pod: VirtualPod) -> bool:
        """Return whether the stage applies to that pod."""
        spec, meta = self.spec, pod.metadata
        if spec.annotations and not _has(spec.annotations, meta.annotations or {}):
            return False
        if spec.owners and not any(one.kind in spec.owners for one in meta.owner_references):
            return False
        if spec.namespaces and meta.namespace not in spec.namespaces:
            return False
        return self._selector.empty or self._selector.matches(meta.labels)

    def fits(self, kind: ContainerKind, container: Container, restarts: int) -> bool:
        """Return whether the stage applies to a container of a matching pod, after that number of restarts."""
        spec = self.spec
        if spec.of and kind not in spec.of:
            return False
        if restarts < spec.min_restarts or (spec.max_restarts is not None and restarts > spec.max_restarts):
            return False
        return _any_fits(spec.containers, container.name) and _any_fits(spec.images, container.image)

    def seconds(self, pod: VirtualPod, container: Container, status: ContainerStatus) -> float:
        """Return the delay of the stage in seconds; infinite for never."""
        found = self._given(pod, container, status)
        if found is not None:
            return found
        if not self._jitter:
            return self._delay
        who = f"{pod.metadata.uid}/{container.name}/{self.name}/{status.restart_count}"
        return self._delay + self._jitter * zlib.crc32(who.encode()) / 2**32

    def exit_code(self, pod: VirtualPod, container: Container) -> int:
        """Return the exit code of a container ended by the stage."""
        if self.spec.exit_code_from == _COMMAND:
            found = exit_of((*container.command, *container.args))
            return self.spec.exit_code if found is None else found
        given = (pod.metadata.annotations or {}).get(self.spec.exit_code_from, "")
        return int(given) % 256 if len(given) < 4 and given.isascii() and given.isdecimal() else self.spec.exit_code

    def _given(self, pod: VirtualPod, container: Container, status: ContainerStatus) -> float | None:
        match self.spec.delay_from:
            case "":
                return None
            case "command":
                return sleep_of((*container.command, *container.args))
            case "startupProbe":
                return success_of(container.startup_probe, _annotated(pod, STARTED_AFTER) or 0.0)
            case "startupFailure":
                return failure_of(container.startup_probe, 0.0)
            case "readinessProbe":
                return success_of(container.readiness_probe)
            case "livenessFailure":
                after = success_of(container.startup_probe, _annotated(pod, STARTED_AFTER) or 0.0)
                return failure_of(container.liveness_probe, _annotated(pod, UNHEALTHY_AFTER), after or 0.0)
            case "backOff":
                return back_off(status)
            case annotation:
                return _annotated(pod, annotation)


def success_of(probe: Probe | None, since: float = 0.0) -> float | None:
    """Return the seconds until a startup or readiness probe succeeds; infinite if its command always fails, None
    without a probe.
    """
    if probe is None:
        return None
    return math.inf if _always_fails(probe) else _time_of_probe(probe, since)


def failure_of(probe: Probe | None, since: float | None, begins: float = 0.0) -> float | None:
    """Return the seconds until a liveness probe that `begins` at a time kills its container.

    It fails from a given time, always if its command fails, else never. None without a probe.
    """
    if probe is None:
        return None
    since = 0.0 if _always_fails(probe) else since
    if since is None:
        return math.inf
    return _time_of_probe(probe, max(since, begins)) + (probe.failure_threshold - 1) * probe.period_seconds


def _always_fails(probe: Probe) -> bool:
    return probe.exec is not None and bool(exit_of(probe.exec.command))


def _time_of_probe(probe: Probe, since: float) -> float:
    """Return the time of the first probe from a time on, in seconds since the start."""
    if math.isinf(since):
        return since
    periods = math.ceil(max(0.0, since - probe.initial_delay_seconds) / max(1, probe.period_seconds))
    return float(probe.initial_delay_seconds + periods * probe.period_seconds)


def _annotated(pod: VirtualPod, annotation: str) -> float | None:
    """Return the seconds in an annotation, or None if it is missing or invalid."""
    text = (pod.metadata.annotations or {}).get(annotation)
    if not text or len(text) > _LONGEST_DURATION:
        return None
    try:
        return _seconds(text, annotation)
    except ValueError:
        return None


def sleep_of(command: Sequence[str]) -> float | None:
    """Return the seconds that a command sleeps, or None if unknown."""
    found = _SLEEP.findall(_text_of(command))
    return sum(math.inf if one.startswith("inf") else float(one) for one in found) if found else None


def exit_of(command: Sequence[str]) -> int | None:
    """Return the exit code of a command, or None if unknown."""
    found = _EXIT.findall(_text_of(command))
    if not found:
        return None
    code, is_false = found[-1]
    return 1 if is_false else int(code) % 256


def _text_of(command: Sequence[str]) -> str:
    """Return the start of a command line, up to the search limit."""
    return " ".join(command)[:_SEARCHED]


def back_off(status: ContainerStatus) -> float:
    """Return the restart backoff in seconds of an ended container, as of the kubelet."""
    ended = status.state.terminated or status.last_state.terminated
    if status.restart_count == 0 or (ended is not None and ended.seconds > _LONG_RUN):
        return 0.0
    return min(_FIRST_BACK_OFF * 2.0 ** min(status.restart_count - 1, 10), _LONGEST_BACK_OFF)


class Stages:
    """A list of stages by descending precedence."""

    def __init__(self, stages: Sequence[LifecycleStage]) -> None:
        self.listed = tuple(stages)
        self._by_state = {state: tuple(one for one in stages if state in one.spec.from_) for state in STATES}

    def for_pod(self, pod: VirtualPod) -> "Stages":
        """Return the stages that apply to a pod."""
        return Stages([one for one in self.listed if one.fits_pod(pod)])

    def of(self, state: str, kind: ContainerKind, container: Container, restarts: int) -> Iterable[LifecycleStage]:
        """Return the possible stages of a container in a state: the first match per target state."""
        found: dict[str, LifecycleStage] = {}
        for stage in self._by_state[state]:
            if stage.to not in found and stage.fits(kind, container, restarts):
                found[stage.to] = stage
        return found.values()


def load_stages(file: str, *, instant: bool) -> Stages:
    """Return the stages of a file, if given, followed by the built-in ones, without delays if `instant`.

    Raises ConfigError.
    """
    own = _read(Path(file), "--virtual-node-stages: ") if file else []
    return Stages([*own, *_shipped(instant=instant)])


@lru_cache(maxsize=2)
def _shipped(*, instant: bool) -> tuple[LifecycleStage, ...]:
    """Return the built-in stages, cached because parsing them is slow."""
    found = _read(Path(__file__).with_name("stages.yaml"), "")
    return tuple(one.without_delay() for one in found) if instant else tuple(found)


def stages_of(tree: Any) -> list[LifecycleStage]:
    """Return the stages of a document. Raises ValueError with the name of the stage and the problem."""
    listed = tree.get("stages") if isinstance(tree, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("stages: there is no list of stages")
    found = []
    for number, one in enumerate(listed):
        try:
            found.append(LifecycleStage(msgspec.convert(one, StageSpec)))
        except ValueError as error:
            raise ValueError(f"stages[{number}]: {error}") from None
    return found


def _read(file: Path, flag: str) -> list[LifecycleStage]:
    from controller_manager.common.base.plain_yaml import read_yaml  # most managers read no such file

    try:
        return stages_of(read_yaml(file.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{flag}{file} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{flag}{file}: {error}") from None


def _seconds(text: str, field: str) -> float:
    if text == _NEVER:
        return math.inf
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None
    if seconds < 0:
        raise ValueError(f"{field}: a stage is not due before its time")
    return seconds


def _has(wanted: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    return all(key in annotations and value in (_ANY, annotations[key]) for key, value in wanted.items())


def _any_fits(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
