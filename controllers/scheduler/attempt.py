"""One attempt to schedule a pod. It may take several time slices and records events in between."""

import msgspec

from controller_manager.common.api.core import Pod

from .cluster_state import ClusterState
from .decide import NoFit, Wanted
from .devices import DEVICES, PodDevices
from .events import Event, OtherEvent, may_help
from .preemption import DryRun
from .queue import QueuedPod
from .volumes import BY_VOLUMES, PodVolumes


class SchedulingAttempt(msgspec.Struct, eq=False):
    """The pod at the start of the attempt, and the results so far.

    `first` is a previously found node to check first. `why` means that there is no node. `room` is then the preemption
    plan, or the text why preemption does not help.
    """

    queued: QueuedPod
    pod: Pod
    wanted: Wanted
    volumes: PodVolumes | None = None
    devices: PodDevices | None = None
    first: str = ""
    pauses: int = 0
    why: NoFit | None = None
    room: DryRun | str = ""
    helped: str = ""
    """Labels of events since `why` was found that may help the pod."""
    _meanwhile: dict[str, str] = {}

    def is_of(self, queued: QueuedPod) -> bool:
        """Return whether the pod still waits in the same state as at the start."""
        return queued is self.queued and queued.pod is self.pod and queued.nominated == self.wanted.nominated

    def note(self, event: Event, state: ClusterState) -> None:
        """Record an event between two time slices."""
        if self.why is not None:
            if may_help(self.why.by, self.wanted.requirements, event, state):
                self.helped = event.label
        elif isinstance(event, OtherEvent) and self.wanted.attached:
            self._meanwhile.update(dict.fromkeys(event.concerns, event.label))

    def found_none(self, why: NoFit) -> None:
        """Record that there is no node for the pod."""
        self.why = why
        self.helped = next((label for by, label in self._meanwhile.items() if by in why.by), "")

    @property
    def is_outdated(self) -> bool:
        """Return whether volumes or devices have changed that the attempt depends on."""
        concerned = (BY_VOLUMES if self.volumes is not None else frozenset()) | (
            frozenset({DEVICES}) if self.devices is not None else frozenset()
        )
        return not concerned.isdisjoint(self._meanwhile)
