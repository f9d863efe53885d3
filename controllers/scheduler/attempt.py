"""One attempt to schedule a pod, which may take several time slices; what happens between them is noted."""

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
    """The pod as it was when the attempt began, and what was found out since. `first` is a node that was found for it
    before, and is to be looked at again; `why` says that there is none, and `room` who may have to go then, or in words
    why nobody does.
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
    """The label of what happened since `why` was found, or looked at, and may help the pod."""
    _meanwhile: dict[str, str] = {}

    def is_of(self, queued: QueuedPod) -> bool:
        """Return whether the pod waits as it did when the attempt began."""
        return queued is self.queued and queued.pod is self.pod and queued.nominated == self.wanted.nominated

    def note(self, event: Event, state: ClusterState) -> None:
        """Something happened between two time slices."""
        if self.why is not None:
            if may_help(self.why.by, self.wanted.requirements, event, state):
                self.helped = event.label
        elif isinstance(event, OtherEvent) and self.wanted.attached:
            self._meanwhile.update(dict.fromkeys(event.concerns, event.label))

    def found_none(self, why: NoFit) -> None:
        """There is no node for the pod, or there was none where nothing has changed."""
        self.why = why
        self.helped = next((label for by, label in self._meanwhile.items() if by in why.by), "")

    @property
    def is_outdated(self) -> bool:
        """Return whether volumes or devices have changed that the attempt looked at."""
        concerned = (BY_VOLUMES if self.volumes is not None else frozenset()) | (
            frozenset({DEVICES}) if self.devices is not None else frozenset()
        )
        return not concerned.isdisjoint(self._meanwhile)
