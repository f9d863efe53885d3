"""/ui: an overview page of the cluster and its data: objects, their states, and the last writes of controllers.

Objects come from the informers of the manager; further informers run while the page is used. A caller sees only the
resources that it may list in all namespaces, as the API server decides. The writes of controllers can concern any
resource, so they are shown only to callers that may list all resources.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from controller_manager.app.overview import (
    OverviewRow,
    Section,
    SectionBuilder,
    StateCount,
    is_owned,
    of_event,
    of_node,
    of_pod,
    of_workload,
)
from controller_manager.app.pages.controllers import summary
from controller_manager.app.pages.html import NO_CACHE, document, headers
from controller_manager.app.state import ManagerState, controllers_judged, standing_by
from controller_manager.common.api.apps import (
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from controller_manager.common.api.batch import CRON_JOBS, JOBS
from controller_manager.common.api.core import EVENTS, NODES, PODS
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base import clock
from controller_manager.common.base.tasks import all_of
from controller_manager.common.component.pages import Handler
from controller_manager.framework.cache.change import Selection
from controller_manager.framework.cache.informer import Informer
from controller_manager.framework.cache.informers import Informers

PATH, STATE_PATH = "/ui", "/ui/state"
WORKLOADS: tuple[Resource[Any], ...] = (
    DEPLOYMENTS,
    STATEFUL_SETS,
    DAEMON_SETS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    JOBS,
    CRON_JOBS,
)
SHOWN: tuple[Resource[Any], ...] = (NODES, PODS, *WORKLOADS, EVENTS)
EVERYTHING: Resource[Any] = Resource("*", "*", "*", "", False, PartialObject)
"""Represents all resources in access checks."""

_JSON = {"content-type": "application/json", "cache-control": NO_CACHE}
_LINGER = 60.0  # seconds that borrowed informers run after the last request
_FRESH = 1.0  # seconds for which an equal request gets the same response
_AT_A_TIME = 200  # objects that are processed in one turn of the loop
_LONGEST_WORDS = 200

_FOLDER = Path(__file__).parent


class MayList(Protocol):
    """Decides whether the caller of a request may list all objects of a resource."""

    async def __call__(self, request: Request, resource: Resource[Any]) -> bool:
        """Return the decision."""


class Glance(msgspec.Struct, frozen=True):
    """The sections of the cluster at one time. `unread` are sections that are not synced, with their last errors."""

    sections: Mapping[str, Section]
    unread: Mapping[str, str]


_SECTIONS: Mapping[str, tuple[Resource[Any], ...]] = {
    "nodes": (NODES,),
    "workloads": WORKLOADS,
    "pods": (PODS,),
    "events": (EVENTS,),
}


class ClusterView:
    """Builds the overview. It borrows informers, and releases them when the page is no longer used."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._borrowed: dict[Resource[Any], Informer[Any]] = {}
        self._looked_at = 0.0
        self._turn = asyncio.Lock()
        # Time, words, resources and result of the last overview.
        self._last: tuple[float, str, frozenset[Resource[Any]], Glance] | None = None

    async def look(self, words: str, allowed: frozenset[Resource[Any]]) -> Glance:
        """Return the overview of the allowed resources, with the rows that contain `words`."""
        self._hold(allowed)
        async with self._turn:
            last = self._last
            if last is not None and last[1:3] == (words, allowed) and clock.monotonic() - last[0] < _FRESH:
                return last[3]
            found = await self._look(words, allowed)
            self._last = clock.monotonic(), words, allowed, found
            return found

    def close(self) -> None:
        """Release all borrowed informers."""
        for informer in self._borrowed.values():
            self._informers.release(informer)
        self._borrowed.clear()
        self._last = None

    def _hold(self, resources: frozenset[Resource[Any]]) -> None:
        self._looked_at = clock.monotonic()
        if not self._borrowed:
            asyncio.get_running_loop().call_later(_LINGER, self._release_unwatched)
        for resource in resources - self._borrowed.keys():
            self._borrowed[resource] = self._informers.borrow(Selection(resource))

    def _release_unwatched(self) -> None:
        left = self._looked_at + _LINGER - clock.monotonic()
        if left <= 0:
            self.close()
        elif self._borrowed:
            asyncio.get_running_loop().call_later(left, self._release_unwatched)

    async def _look(self, words: str, allowed: frozenset[Resource[Any]]) -> Glance:
        sections, unread = {}, {}
        for name, resources in _SECTIONS.items():
            informers = [self._borrowed[resource] for resource in resources if resource in allowed]
            missing = [informer.state().last_error for informer in informers if not informer.is_synced]
            if missing:
                unread[name] = next(filter(None, missing), "")
            elif informers:
                judge = self._judge(name, shows_pods=PODS in allowed)
                sections[name] = await self._section(name, informers, judge, words)
        return Glance(sections, unread)

    async def _section(
        self, name: str, informers: Sequence[Informer[Any]], judge: Callable[[Any], OverviewRow | None], words: str
    ) -> Section:
        builder = SectionBuilder(words, newest=name == "events")
        for informer in informers:
            objects = informer.list()
            for begin in range(0, len(objects), _AT_A_TIME):
                builder.add(filter(None, map(judge, objects[begin : begin + _AT_A_TIME])))
                await asyncio.sleep(0)
        return builder.section()

    def _judge(self, section: str, *, shows_pods: bool) -> Callable[[Any], OverviewRow | None]:
        """Return the function that makes rows of a section's objects; None for objects that their owner represents."""
        match section:
            case "nodes" if not shows_pods:
                return partial(of_node, pods=None)
            case "nodes":
                pods = self._borrowed.get(PODS)
                pods_on = Counter(pod.spec.node_name for pod in (pods.list() if pods is not None else ()))
                return lambda node: of_node(node, pods_on[node.metadata.name])
            case "workloads":
                return lambda workload: None if is_owned(workload) else of_workload(workload)
            case "pods":
                return of_pod
            case _:
                return of_event


def ui_handlers(state: Callable[[], ManagerState], view: ClusterView, may_list: MayList) -> Mapping[str, Handler]:
    """Return the handlers of the static page and of its data; `?q=` filters rows."""

    async def show(_: Request) -> Response:
        return _page()

    async def show_state(request: Request) -> Response:
        words = dict(request.query).get("q", "").strip()[:_LONGEST_WORDS]
        *decisions, sees_acts = await all_of(*(may_list(request, resource) for resource in (*SHOWN, EVERYTHING)))
        allowed = frozenset(resource for resource, may in zip(SHOWN, decisions, strict=True) if may)
        found = await view.look(words, allowed)
        return Response(200, _JSON, msgspec.json.encode(_tree(state(), found, allowed, sees_acts=sees_acts)))

    return {PATH: show, STATE_PATH: show_state}


@cache
def _page() -> Response:
    script, style = ((_FOLDER / name).read_text() for name in ("ui.js", "ui.css"))
    body = f"{(_FOLDER / 'ui.html').read_text()}<script>{script}</script>"
    return Response(200, headers(script, connects=True), document("Cluster", body, f"<style>{style}</style>").encode())


def _tree(state: ManagerState, glance: Glance, allowed: frozenset[Resource[Any]], *, sees_acts: bool) -> dict[str, Any]:
    """Return the data of the page, with the names of sections that are not allowed instead of their content."""
    denied = [name for name, resources in _SECTIONS.items() if allowed.isdisjoint(resources)]
    return {
        "manager": {
            "name": state.name,
            "identity": state.identity,
            "time": state.time,
            "uptime": state.uptime,
            "leads": any(lock.leads for lock in state.locks),
            "standingBy": standing_by(state.locks),
            "stopping": state.stopping,
            "summary": summary(state),
        },
        "denied": denied if sees_acts else [*denied, "acts"],
        "unread": glance.unread,
        "sections": {name: _section_tree(one) for name, one in glance.sections.items()},
        "controllers": [
            {
                "name": one.name,
                "severity": verdict.severity.name.lower(),
                "why": verdict.why,
                "phase": one.phase.value,
                "acted": msgspec.to_builtins(one.work.acted) if sees_acts and one.work is not None else [],
            }
            for verdict, one in controllers_judged(state.controllers)
        ],
    }


def _section_tree(section: Section) -> dict[str, Any]:
    return {
        "count": section.count,
        "found": section.found,
        "states": [
            {"state": it.state, "count": it.count, "severity": it.severity.name.lower()} for it in section.states
        ],
        "rows": [{**msgspec.to_builtins(row), "severity": row.severity.name.lower()} for row in section.rows],
    }


def _named(one: OverviewRow | StateCount) -> dict[str, Any]:
    return {**msgspec.to_builtins(one), "severity": one.severity.name.lower()}
