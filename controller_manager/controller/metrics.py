"""Which controllers of one process run, and how often each was started again after a crash."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.base.metrics import Family, Shown
from controller_manager.controller.build import Controller
from controller_manager.controller.state import Phase

_RUNNING = Family(
    "running_managed_controllers",
    "1 while the controller runs in this process: the replica leads, and it is not waiting or crashed.",
    "gauge",
    ("manager", "name"),
)
_RESTARTS = Family("controller_restarts_total", "Crashes of the controller itself.", "counter", ("controller",))


class ControllerMetrics(Collector):
    """Read from the controllers of the process `manager` at scrape time."""

    def __init__(self, controllers: Sequence[Controller], manager: str) -> None:
        self._controllers = controllers
        self._manager = manager

    def collect(self) -> Iterable[Metric]:
        """One sample of each family per controller; called by the registry."""
        states = [controller.state() for controller in self._controllers]
        running = [((self._manager, one.name), float(one.phase is Phase.RUNNING)) for one in states]
        restarts = [((one.name,), float(one.restarts)) for one in states]
        return (Shown(_RUNNING, running), Shown(_RESTARTS, restarts))
