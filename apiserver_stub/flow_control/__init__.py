"""Flow control: limits the number of concurrent requests per flow (KEP-1040)."""

from collections.abc import Awaitable, Callable, Mapping

from apiserver_stub.common.flags import FlowControlOptions
from apiserver_stub.flow_control.controller import MANAGER, Apply, FlowControlController
from apiserver_stub.flow_control.dumps import dump_pages
from apiserver_stub.flow_control.in_flight import MaxInFlight
from apiserver_stub.flow_control.priority_and_fairness import PriorityAndFairness
from apiserver_stub.flow_control.retry_after import Rejected
from apiserver_stub.flow_control.work_estimates import StoredSizes
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.runtime import Runtime

__all__ = ["MANAGER", "FlowControlParts", "MaxInFlight", "PriorityAndFairness", "Rejected", "build_flow_control"]

Page = Callable[[Request], Awaitable[Response]]


class FlowControlParts:
    """The flow control of a server: the limiter, its debug pages, and the controller of its configuration."""

    def __init__(
        self,
        limiter: PriorityAndFairness | MaxInFlight,
        controller: FlowControlController | None = None,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        self.limiter = limiter
        self.pages = pages or {}
        self._controller = controller

    def read(self) -> None:
        """Read the stored configuration."""
        if self._controller is not None:
            self._controller.read()

    async def settle(self) -> None:
        """Write the status of the configuration."""
        if self._controller is not None:
            await self._controller.settle()

    async def run(self) -> None:
        """Divide seats by demand and apply configuration changes until canceled."""
        if self._controller is not None:
            await self._controller.run()


def build_flow_control(
    options: FlowControlOptions,
    share: Callable[[int], int],
    store: WatchCache,
    kinds: ResourceRegistry,
    apply: Apply,
    patience: float,
    runtime: Runtime,
) -> FlowControlParts:
    """Return the flow control configured by flags; a request has `patience` seconds in total. `share` returns this
    process's part of a limit.
    """
    reading, mutating = share(options.max_requests_inflight), share(options.max_mutating_requests_inflight)
    if not options.enable_priority_and_fairness:
        return FlowControlParts(MaxInFlight(reading, mutating))
    sizes = StoredSizes(store, kinds)
    control = PriorityAndFairness(reading + mutating, sizes.of, patience, runtime.registry)
    controller = FlowControlController(store, control, apply, runtime.log("flow control"))
    return FlowControlParts(control, controller, dump_pages(control))
