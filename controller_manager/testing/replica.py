"""A controller manager of a cluster of tests: by what it is started, how it ends, and what it should not do."""

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
from controller_manager.common.options import Parsed
from controller_manager.common.transport.credentials import Obtain
from controller_manager.common.transport.transport import Transport
from controller_manager.framework.cloud_provider import MakeCloudProvider
from controller_manager.framework.controller.runner import Phase
from controller_manager.framework.work import Failing, Spinning
from controller_manager.testing.faults import FaultyNetwork, Note
from controller_manager.testing.rbac import PermittedTransport, RBACEnforcer

# A key that failed so many times in a row fails the test, if it still does once the cluster is at rest.
_PERSISTENT = 3
Reach = Callable[[Parsed, Obtain | None], Transport]


class ManagerFailedError(AssertionError):
    """A manager ended unasked, or a controller does what cannot work; says which, on which key, and why."""


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
    """A controller manager of a cluster; nobody complains of one that is not `strict`."""

    def __init__(self, plan: ManagerPlan, note: Note) -> None:
        self._note = note
        self.plan = plan
        """By what it is started."""
        self.manager: Manager
        self.network: FaultyNetwork
        self.enforcer: RBACEnforcer
        self._task: asyncio.Task[Ending]
        # Whether the test reckons with its end.
        self._may_end = False

    def start(self, tasks: Tasks, reach: Reach, me: str = "") -> None:
        """Start it, by the identity `me` if there is one; `reach` makes transports to the server. One that was ended
        starts anew: it knows nothing.
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
        """Stop it as SIGTERM would."""
        self._may_end = True
        self._say("is stopped")
        self.manager.stop("the test stopped it")
        return await self._task

    async def kill(self) -> None:
        """End it as SIGKILL would: nothing it still wants to say gets out."""
        self._may_end = True
        self._say("is killed")
        self.network.cut()
        self._task.cancel()
        await asyncio.wait((self._task,))

    @property
    def has_ended(self) -> bool:
        """Return whether it ended by itself."""
        return self._task.done()

    def busy_with(self, within: float = 0.0) -> tuple[str, ...]:
        """Return in words what it has to do now, or within so many seconds; nothing once it has ended."""
        return () if self.has_ended else self.manager.busy_with(within)

    async def ended(self) -> Ending:
        """Wait until it ends by itself."""
        self._may_end = True
        return await self._task

    def _is_wrong(self, one: Failing, at_rest: bool) -> bool:
        """Return whether the controller is to blame: if watches were disturbed, its local copies may be out of date."""
        if one.defect and not one.stubborn:
            return True
        if self.network.disturbed or self.plan.faults or one.given_up:
            return False
        return one.defect or (at_rest and one.failures >= _PERSISTENT and not one.transient)

    def complaints(self, *, at_rest: bool = False) -> list[str]:
        """Return what must fail the test: that it ended unasked, an object that does not fit its model, or what its
        controllers do that cannot work; `at_rest` also the keys that failed several times in a row and still do.
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
        """Return the sentence about an object that does not fit its model, with the controllers that do not see it."""
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
