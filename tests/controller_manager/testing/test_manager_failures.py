"""Failures of a manager fail the test that runs it; the message has controller, key and cause."""

import time
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import ENDPOINTS, PODS, SERVICES
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.resource import Key, Resource
from controller_manager.common.base.random import random_source
from controller_manager.common.options.flag import Options
from controller_manager.framework import (
    Context,
    ControllerSpec,
    For,
    PolicyRule,
    Requeue,
    TerminalError,
    TransportError,
)
from controller_manager.framework.client.rest_client import Call
from controller_manager.testing import Cluster, ManagerFailedError, builders, loop_watch

pytestmark = pytest.mark.virtual

MAY = (
    PolicyRule(("",), ("pods",), ("get", "list", "watch", "create", "update", "patch")),
    PolicyRule(("",), ("pods/status",), ("update",)),
)


class Author:
    """A controller with a mistake."""

    def __init__(self, context: Context, options: Options) -> None:
        self.client = context.client

    async def reconcile(self, key: Key) -> Requeue | None:
        raise NotImplementedError


class Forgetful(Author):
    async def reconcile(self, key: Key) -> Requeue | None:
        words: dict[str, str] = {}
        words["html"]
        return None


class Careless(Author):
    async def reconcile(self, key: Key) -> Requeue | None:
        await self.client.patch(PODS, key, {"spec": {"hostname": "No Name"}})
        return None


class Lost(Author):
    async def reconcile(self, key: Key) -> Requeue | None:
        await self.client.get(PODS, Key(key.namespace, "another"))
        return None


class Patient(Author):
    async def reconcile(self, key: Key) -> Requeue | None:
        raise TerminalError("there is nothing to be done")


class Unlucky(Author):
    async def reconcile(self, key: Key) -> Requeue | None:
        raise ServiceUnavailable("not now") if random_source().uniform(0, 1) < 0.5 else TransportError("unreachable")


class Recovering(Author):
    """Fails the first time."""

    failed = False

    async def reconcile(self, key: Key) -> Requeue | None:
        if not self.failed:
            self.failed = True
            raise KeyError("html")
        return None


class Sleepy(Author):
    async def reconcile(self, key: Key) -> Requeue | None:
        time.sleep(30)  # noqa: ASYNC251 - a deliberate mistake
        return None


class Busy(Author):
    async def reconcile(self, key: Key) -> Requeue | None:
        while True:
            pass


class Spinning(Author):
    """Asks to run again at once, every time."""

    async def reconcile(self, key: Key) -> Requeue | None:
        return Requeue(0)


class Affirmative(Author):
    """Returns an invalid outcome."""

    async def reconcile(self, key: Key) -> Requeue | None:
        done: Any = True
        return done


class Impatient(Author):
    """Raises its own error in every run."""

    async def reconcile(self, key: Key) -> Requeue | None:
        raise RuntimeError("not ready")


class Outdated(Author):
    """Updates an old version of its object in every run."""

    async def reconcile(self, key: Key) -> Requeue | None:
        pod = await self.client.get(PODS, key)
        old = replace(pod, metadata=replace(pod.metadata, resource_version="1", labels={"a": "b"}))
        await self.client.update(PODS, old)
        return None


class Misspelt(Author):
    """Applies a field that the server does not know."""

    async def reconcile(self, key: Key) -> Requeue | None:
        await self.client.apply(PODS, key, {"spec": {"hostnaem": "p"}}, "author")
        return None


class Annotating(Author):
    """Writes another annotation in every run."""

    async def reconcile(self, key: Key) -> Requeue | None:
        await self.client.patch(PODS, key, {"metadata": {"annotations": {"seen": str(random_source().uniform(0, 1))}}})
        return None


class Reporting(Author):
    """Writes another status in every run."""

    async def reconcile(self, key: Key) -> Requeue | None:
        pod = await self.client.get(PODS, key)
        status = replace(pod.status, message=str(random_source().uniform(0, 1)))
        await self.client.update(PODS, replace(pod, status=status), subresource="status")
        return None


class Stepping(Author):
    """Creates one object per run, 150 in all."""

    async def reconcile(self, key: Key) -> Requeue | None:
        if (number := int(key.name.removeprefix("p").removeprefix("-") or 0)) < 150:
            await self.client.create(PODS, builders.pod(f"p-{number + 1}"))
        return None


class Crashing(Author):
    def __init__(self, context: Context, options: Options) -> None:
        raise ZeroDivisionError("made wrong")


def spec(reconciler: type[Author]) -> ControllerSpec[Options]:
    return ControllerSpec(
        name="author-controller", reconciler=reconciler, options=Options, watches=(For(PODS),), rbac=MAY
    )


async def start(cluster: Cluster, reconciler: type[Author], **more: Any) -> Any:
    replica = await cluster.manage("--leader-elect=false", specs=[spec(reconciler)], **more)
    await cluster.client.create(PODS, builders.pod("p"))
    return replica


async def run_controller(reconciler: type[Author], failure: Exception | None = None, seconds: float = 20.0) -> None:
    """Run a controller in a test that waits for nothing and may fail itself."""
    async with Cluster() as cluster:
        await start(cluster, reconciler)
        await cluster.sleep(seconds)
        if failure is not None:
            raise failure


WRONG = {
    "an error of the author's": (Forgetful, r"author-controller failed .* on default/p: KeyError: 'html'"),
    "an invalid write": (Careless, r"author-controller failed .* on default/p: Invalid: .*spec\.hostname"),
    "a repeated refusal": (Lost, r"author-controller failed 1\d times in a row on default/p: NotFound: "),
    "a sleep": (
        Sleepy,
        r"author-controller failed .* on default/p: BlockedLoopError: time.sleep\(30\) holds",
    ),
    "a requeue without a delay": (
        Spinning,
        (
            r"author-controller asked to run again at once \d+ times in a row on default/p; .*"
            r"woken by: pods default/p (created|listed); at .*test_manager_failures.py:\d+ in Spinning.reconcile"
        ),
    ),
    "a return value that is no outcome": (
        Affirmative,
        (
            r"author-controller failed .* on default/p: TypeError: reconcile returned True; .*"
            r"woken by: pods default/p (created|listed); at .*test_manager_failures.py:\d+ in Affirmative.reconcile"
        ),
    ),
    "an error in every run": (
        Impatient,
        (
            r"author-controller failed .* on default/p: RuntimeError: not ready; "
            r"woken by: pods default/p (created|listed); at .*test_manager_failures.py:\d+ in Impatient.reconcile"
        ),
    ),
    "a conflict in every run": (
        Outdated,
        r"author-controller failed .* on default/p: Conflict: .* in Outdated.reconcile",
    ),
    "an applied field that is unknown": (
        Misspelt,
        (
            r"author-controller failed .* on default/p: .*spec.hostnaem: field not declared in schema; "
            r"woken by: pods default/p (created|listed); at .*test_manager_failures.py:\d+ in Misspelt.reconcile"
        ),
    ),
    "an annotation that differs in every run": (
        Annotating,
        (
            r"author-controller ran 50 times in a row on default/p because of its own writes of pods default/p; .*"
            r"woken by: pods default/p updated; at .*test_manager_failures.py:\d+ in Annotating.reconcile"
        ),
    ),
    "a status that differs in every run": (
        Reporting,
        (
            r"author-controller ran 50 times in a row on default/p because of its own writes of pods default/p; .*"
            r"at .*test_manager_failures.py:\d+ in Reporting.reconcile"
        ),
    ),
    "a crash": (Crashing, r"author-controller crashed: ZeroDivisionError: made wrong"),
}


@pytest.mark.parametrize(("reconciler", "message"), WRONG.values(), ids=WRONG)
async def test_defective_controller_fails_a_waiting_test(reconciler: type[Author], message: str) -> None:
    async with Cluster() as cluster:
        replica = await start(cluster, reconciler)
        with pytest.raises(ManagerFailedError, match=message):
            await cluster.advance(20)
        await replica.stop()


@pytest.mark.parametrize(("reconciler", "message"), WRONG.values(), ids=WRONG)
async def test_defective_controller_fails_a_test_that_does_not_wait(reconciler: type[Author], message: str) -> None:
    with pytest.raises(ManagerFailedError, match=message):
        await run_controller(reconciler)


async def test_endless_step_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "LIMIT", 0.3)
    message = r"author-controller failed .* on default/p: BlockedLoopError: it held the event loop for more than 0\.3 s"
    with pytest.raises(ManagerFailedError, match=message):
        await run_controller(Busy, seconds=0.004)


class GreetingSpec(Model):
    """Declares a number as a string."""

    replicas: str = ""


class Greeting(Object):
    """A custom resource with the wrong model."""

    spec: GreetingSpec = GreetingSpec()


DEFINITION = msgspec.json.encode(
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "greetings.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "greetings", "kind": "Greeting"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                }
            ],
        },
    }
)
GREETINGS = Resource("example.com", "v1", "greetings", "Greeting", namespaced=True, type=Greeting)


async def test_object_that_does_not_fit_its_model_fails_the_test() -> None:
    message = (
        r"greeter cannot read greetings\.example\.com default/hello: .* at `\$\.spec\.replicas\[?.*; "
        r"the model is Greeting at .*test_manager_failures\.py:\d+"
    )
    tree = {
        "apiVersion": "example.com/v1",
        "kind": "Greeting",
        "metadata": {"name": "hello"},
        "spec": {"replicas": [1]},
    }
    watches = (For(GREETINGS),)
    spec = ControllerSpec(name="greeter", reconciler=Patient, options=Options, watches=watches)
    async with Cluster() as cluster:
        await cluster.client.raw(
            Call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=DEFINITION)
        )
        await cluster.sleep(1)
        await cluster.client.raw(Call("POST", GREETINGS.path("default"), body=msgspec.json.encode(tree)))
        replica = await cluster.manage("--leader-elect=false", specs=[spec])
        with pytest.raises(ManagerFailedError, match=message):
            await cluster.settle()
        await replica.stop()


@pytest.mark.parametrize("reconciler", [Patient, Unlucky, Recovering, Stepping])
async def test_retryable_errors_fail_no_test(reconciler: type[Author]) -> None:
    async with Cluster() as cluster:
        await start(cluster, reconciler)
        await cluster.advance(60)


async def test_errors_after_network_faults_fail_no_test() -> None:
    """After a silent watch a controller acts on an outdated cache."""
    async with Cluster() as cluster:
        replica = await start(cluster, Lost)
        replica.network.cut()
        replica.network.heal()
        await cluster.advance(60)


async def test_strict_false_allows_defects() -> None:
    async with Cluster() as cluster:
        await start(cluster, Forgetful, strict=False)
        await cluster.advance(20)


async def test_failure_of_the_test_itself_takes_precedence() -> None:
    with pytest.raises(LookupError):
        await run_controller(Forgetful, LookupError())


async def test_manager_ending_unexpectedly_fails_the_test() -> None:
    message = "manager-1 ended unasked: the lease .* could not be renewed for 10 s"
    async with Cluster() as cluster:
        replica = await cluster.manage("--controllers=ttl")
        await cluster.settle()
        replica.network.cut()
        with pytest.raises(ManagerFailedError, match=message):
            await cluster.advance(60)
        await replica.ended()


async def test_manager_with_may_lose_lead_may_end() -> None:
    async with Cluster() as cluster:
        replica = await cluster.manage("--controllers=ttl", may_lose_lead=True)
        await cluster.settle()
        replica.network.cut()
        await cluster.advance(60)
        assert replica.has_ended


@pytest.mark.virtual(seeds=20)
async def test_faults_do_not_end_lead_of_single_manager() -> None:
    async with Cluster() as cluster:
        await cluster.manage("--controllers=endpoint", faults=0.2)
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.advance(300)
        assert await cluster.client.get(ENDPOINTS, Key("default", "web"))
