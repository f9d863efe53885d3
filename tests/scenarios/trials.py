"""Parts of trials by fault, whose randomness comes from their seed."""

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


def one_of(choices: Sequence[T]) -> T:
    """Return one of them; raises NotFound where there is none."""
    if not choices:
        raise NotFound("there is none")
    return choices[int(random_source().uniform(0, len(choices))) % len(choices)]


class SmallDiscovery:
    """Answers discovery with few namespaced resources of the core group, so that whoever looks at all of them asks a
    tenth as much; lets all else pass.
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


def unheard(path: str) -> Callable[[Request], Response | None]:
    """Answers nobody who follows the collection at `path`, and has watches begin anew: what comes and goes meanwhile is
    never heard of.
    """

    def intercept(request: Request) -> Response | None:
        if request.method != "GET" or request.path != path:
            return None
        return Response(500 if dict(request.query).get("sendInitialEvents") else 410, {}, b"")

    return intercept


def _answer(items: list[Any]) -> Response:
    return Response(200, {}, json.dumps({"kind": "APIGroupDiscoveryList", "items": items}).encode())


async def go_on(
    cluster: Cluster, people: Sequence[Callable[[], Awaitable[None]]], actions: int, longest: float = 20.0
) -> None:
    """Have so many things happen, up to `longest` seconds apart."""
    for _ in range(actions):
        # Some are refused: what they are about may not be there.
        with contextlib.suppress(ApiError, TransportError):
            await one_of(people)()
        if random_source().uniform(0, 1) < 0.6:
            await cluster.sleep(random_source().uniform(0, longest))


def put_forward(seconds: float) -> None:
    """Have the clock say that it is later, which no timer notices, and costs nothing."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.epoch += seconds


async def calm(cluster: Cluster, faults: FaultInjector, seconds: float = 1500.0) -> None:
    """End all that goes wrong, and wait for longer than a silent watch goes unnoticed and than what failed waits."""
    await faults.heal()
    await cluster.sleep(seconds)
    await cluster.settle()


async def is_quiet(cluster: Cluster) -> None:
    """Raise AssertionError if anything is written in a minute."""
    revision = cluster.api.store.revision
    await cluster.advance(60)
    assert cluster.api.store.revision == revision
