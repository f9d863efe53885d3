"""Building blocks of fault tests; their randomness comes from the seed of the test."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.random import random_source
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster
from controller_manager.testing.fault_injector import FaultInjector
from controller_manager.testing.virtual import VirtualLoop

T = TypeVar("T")


def random_choice(choices: Sequence[T]) -> T:
    """Return a random choice; raises NotFound if there is none."""
    if not choices:
        raise NotFound("there is none")
    return choices[int(random_source().uniform(0, len(choices))) % len(choices)]


class SmallDiscovery:
    """Answers discovery with a few namespaced resources of the core group, so that controllers of all resources send a
    tenth of the requests; passes all other requests on.
    """

    def __init__(self, **kinds: str) -> None:
        verbs = ("get", "list", "watch", "delete", "deletecollection")
        resources = [
            {"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced", "verbs": verbs}
            for plural, kind in kinds.items()
        ]
        core = {"metadata": {}, "versions": [{"version": "v1", "resources": resources}]}
        self._answers = {"/api": _answer([core]), "/apis": _answer([])}

    def __call__(self, request: Request) -> Response | None:
        return self._answers.get(request.path)


def break_watches(path: str) -> Callable[[Request], Response | None]:
    """Return a handler that fails all watches of the collection at `path`, so that changes meanwhile are missed."""

    def intercept(request: Request) -> Response | None:
        if request.method != "GET" or request.path != path:
            return None
        return Response(500 if dict(request.query).get("sendInitialEvents") else 410, {}, b"")

    return intercept


def _answer(items: list[Any]) -> Response:
    return Response(200, {}, json.dumps({"kind": "APIGroupDiscoveryList", "items": items}).encode())


async def run_random_actions(
    cluster: Cluster, people: Sequence[Callable[[], Awaitable[None]]], actions: int, longest: float = 20.0
) -> None:
    """Run `actions` random actions, up to `longest` seconds apart."""
    for _ in range(actions):
        # Actions fail if their object does not exist.
        with contextlib.suppress(ApiError, TransportError):
            await random_choice(people)()
        if random_source().uniform(0, 1) < 0.6:
            await cluster.sleep(random_source().uniform(0, longest))


def advance_wall_clock(seconds: float) -> None:
    """Advance the wall clock only, which fires no timer."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.epoch += seconds


async def heal_and_settle(cluster: Cluster, faults: FaultInjector, seconds: float = 1500.0) -> None:
    """End all faults, and wait for longer than silent watches and retries take."""
    await faults.heal()
    await cluster.sleep(seconds)
    await cluster.settle()


async def assert_no_writes(cluster: Cluster) -> None:
    """Raise AssertionError if anything is written within a minute."""
    revision = cluster.api.store.revision
    await cluster.advance(60)
    assert cluster.api.store.revision == revision
