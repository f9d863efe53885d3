"""A controller manager of a test cluster: start, stop, and the problems that fail a test."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller_manager.app.catalog import AnySpec
from controller_manager.app.manager import Ending, Manager
from controller_manager.common.api.model import Object
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.wire import Request
from controller_manager.common.base.errors import describe
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.parse import Parsed
from controller_manager.common.transport.credentials import Obtain
from controller_manager.common.transport.transport import Transport
from controller_manager.framework.cloud_provider import MakeCloudProvider
from controller_manager.framework.controller.runner import Phase
from controller_manager.framework.work.failures import Failing
from controller_manager.framework.work.spinning import Spinning
from controller_manager.testing.faults import FaultyNetwork, Note
from controller_manager.testing.rbac import PermittedTransport, RBACEnforcer

# A key with this number of failures in a row fails the test if it is still failing when the cluster is at rest.
_PERSISTENT = 3
Reach = Callable[[Parsed, Obtain | None], Transport]


class ManagerFailedError(AssertionError):
    """A manager ended unexpectedly, or a controller failed; the message has the controller, the key and the reason."""


@dataclass(frozen=True, slots=True)
class ManagerPlan:
    """The flags, controllers and faults of a manager; see `Cluster.manage`."""

    name: str
    options: Parsed
    specs: Sequence[AnySpec]
    faults: float
    may_lose_lead: bool
    strict: bool
    cloud_providers: Mapping[str, MakeCloudProvider]


class Replica:
    """A controller manager of a test cluster. Its problems fail the test only if its plan is `strict`."""

    def __init__(self, plan: ManagerPlan, note: Note) -> None:
        self._note = note
        self.plan = plan
        """The flags and controllers that it is started with."""
        self.manager: Manager
        self.network: FaultyNetwork
        self.enforcer: RBACEnforcer
        self._task: asyncio.Task[Ending]
        # Whether the test expects it to end.
        self._may_end = False

    def start(self, tasks: Tasks, reach: Reach, me: str = "") -> None:
        """Start the manager, with the identity `me` if given; `reach` returns transports to the server.

        It may have ended before; it then starts without any state.
        """
        plan = self.plan
        self.enforcer = enforcer = RBACEnforcer(plan.specs)
        self.network = FaultyNetwork(
            lambda obtain: PermittedTransport(reach(plan.options, obtain), enforcer),
            plan.faults,
            election=plan.may_lose_lead,
            note=self._say,
        )
        self.manager = Manager(plan.options, plan.specs, self.network, Runtime(plan.name), plan.cloud_providers, me)
        self._task = tasks.start(self.manager.run(), name=plan.name)
        self._may_end = plan.may_lose_lead
        self._say("starts")

    def _say(self, what: str, request: Request | None = None) -> None:
        self._note(f"{self.plan.name}: {what}", request)

    async def stop(self) -> Ending:
        """Stop it, like SIGTERM."""
        self._may_end = True
        self._say("is stopped")
        self.manager.stop("the test stopped it")
        return await self._task

    async def kill(self) -> None:
        """Kill it, like SIGKILL: no further request reaches the server."""
        self._may_end = True
        self._say("is killed")
        self.network.cut()
        self._task.cancel()
        await asyncio.wait((self._task,))

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    def busy_with(self, within: float = 0.0) -> tuple[str, ...]:
        """Describe the pending work, including keys due within `within` seconds; empty once it has ended."""
        return () if self.has_ended else self.manager.busy_with(within)

    async def ended(self) -> Ending:
        """Wait until it ends by itself."""
        self._may_end = True
        return await self._task

    def _is_wrong(self, one: Failing, at_rest: bool) -> bool:
        """Return whether the controller is at fault; after network faults, outdated caches may be the reason."""
        if one.defect and not one.stubborn:
            return True
        if self.network.disturbed or self.plan.faults or one.given_up:
            return False
        return one.defect or (at_rest and one.failures >= _PERSISTENT and not one.transient)

    def complaints(self, *, at_rest: bool = False) -> list[str]:
        """Return the problems that must fail the test: an unexpected end, undecodable objects, failing controllers.

        With `at_rest`, also the keys that have failed several times in a row and still fail.
        """
        if not self.plan.strict:
            return []
        name, found = self._task.get_name(), list(self.enforcer.refused)
        if self.has_ended:
            return found if self._may_end else [*found, f"{name} ended unasked: {_end(self._task)}"]
        for controller in self.manager.failing():
            if controller.phase is Phase.CRASHED:
                found.append(f"{controller.name} crashed: {controller.crash}")
            if controller.work is not None:
                wrong = (one for one in controller.work.failing if self._is_wrong(one, at_rest))
                found += [_failure(controller.name, one) for one in wrong]
                found += [_spinning(controller.name, one, controller.work.where) for one in controller.work.spinning]
        return [*found, *(self._misfit(resource, why) for resource, why in self.manager.unreadable())]

    def _misfit(self, resource: Resource[Any], why: str) -> str:
        """Return the message about an object that cannot be decoded, with the controllers that do not see it."""
        readers = [spec.name for spec in self.plan.specs if any(resource == watch.resource for watch in spec.watches)]
        text = f"{', '.join(readers) or 'an informer'} cannot read {resource.name} {why}"
        return f"{text}; the model is {resource.type.__qualname__} at {_definition(resource.type)}"


def _definition(model: type[Object]) -> str:
    """Return the file and line where a model is defined."""
    try:
        return f"{inspect.getsourcefile(model)}:{inspect.getsourcelines(model)[1]}"
    except (OSError, TypeError):  # its source is not in a file
        return model.__module__


def _end(task: "asyncio.Task[Ending]") -> str:
    if task.cancelled():
        return "it was cancelled"
    error = task.exception()
    return describe(error) if error is not None else task.result().reason


def _failure(controller: str, one: Failing) -> str:
    times = "once" if one.failures == 1 else f"{one.failures} times in a row"
    return _blame(f"{controller} failed {times} on {one.key}: {one.error}", one.causes, one.where)


def _spinning(controller: str, one: Spinning, where: str) -> str:
    text = f"{controller} asked to run again at once {one.runs} times in a row on {one.key}; return Requeue(seconds)"
    return _blame(text, one.causes, where)


def _blame(text: str, causes: Sequence[str], where: str) -> str:
    woken_by = f"; woken by: {', '.join(causes)}" if causes else ""
    return f"{text}{woken_by}{where and f'; at {where}'}"
