"""Deletion of namespaces under faults, by seed, in virtual time.

After every change of the store:
- a namespace is removed only when it is empty;
- the controller writes nothing outside of terminating namespaces;
- while a namespace has pods, the controller deletes nothing else in it;
- finalizers of users stay, in the namespace and its content.
After recovery:
- a namespace with content that has a finalizer of a user exists with exactly that content, and reports it;
- every other deleted namespace is removed, unless it has a finalizer of a user;
- every namespace that was not deleted has all its content.
"""

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.core import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ConfigMap,
    Namespace,
    Pod,
    ServiceAccount,
)
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.random import random_source
from controller_manager.testing import Cluster, Replica, builders
from tests.scenarios.faults import SmallDiscovery

HOLD = "example.org/hold"
# The first three namespaces are deleted; users hold content of the second, and the third itself.
PLAIN, HELD, GUARDED, KEPT = "plain", "held", "guarded", "kept"
QUIET = 40.0
DISCOVERY = SmallDiscovery(pods="Pod", services="Service", serviceaccounts="ServiceAccount", configmaps="ConfigMap")


async def fill(cluster: Cluster, name: str) -> None:
    """Create random content; in the held namespace a config map has a finalizer of a user."""
    client = cluster.client
    await client.create(NAMESPACES, builders.namespace(name))
    for number in range(int(random_source().uniform(0, 3))):
        await client.create(PODS, running(builders.pod(f"p-{number}", namespace=name)))
    if random_source().uniform(0, 1) < 0.5:
        await client.create(SERVICES, builders.service("web", namespace=name))
    for number in range(int(random_source().uniform(0, 3))):
        account = ServiceAccount(metadata=ObjectMeta(namespace=name, name=f"a-{number}"))
        await client.create(SERVICE_ACCOUNTS, account)
    finalizers = (HOLD,) if name == HELD else ()
    held = ConfigMap(metadata=ObjectMeta(namespace=name, name="held", finalizers=finalizers), data={"a": "b"})
    await client.create(CONFIG_MAPS, held)


def running(pod: Pod) -> Pod:
    """Return a pod on a node, which needs time to stop."""
    return replace(pod, spec=replace(pod.spec, node_name="node"))


async def stop_pods(cluster: Cluster) -> None:
    """Stop terminating pods, as a node does."""
    for pod in (await cluster.client.list(PODS)).items:
        if pod.metadata.deletion_timestamp is not None:
            await cluster.client.delete(PODS, key_of(pod), grace=0)
        await cluster.sleep(random_source().uniform(0, 3))


async def guard(cluster: Cluster, name: str) -> None:
    """Add a finalizer of a user to the one every namespace has."""
    found: Namespace = await cluster.client.get(NAMESPACES, Key("", name))
    spec = replace(found.spec, finalizers=("kubernetes", HOLD))
    await cluster.client.update(NAMESPACES, replace(found, spec=spec), subresource="finalize")


class RequestChecker:
    """Checks each request of managers before it is answered, and each change of the store."""

    def __init__(self, cluster: Cluster) -> None:
        self._content: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()
        self.violations: list[str] = []
        cluster.api.store.subscribe(self._note)

    def __call__(self, request: Request) -> Response | None:
        """Record a request; pass it on, unless it is for discovery."""
        if (answer := DISCOVERY(request)) is not None:
            return answer
        parts = request.path.strip("/").split("/")
        if request.method == "GET" or {"leases", "events"} & set(parts[-2:]):
            return None
        space = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        resource = parts[parts.index(space) + 1] if space and parts[-1] != space else ""
        if space not in (PLAIN, HELD, GUARDED):
            self.violations.append(f"{request.method} {request.path} is outside")
        elif resource in ("status", "finalize"):
            if request.method != "PUT":
                self.violations.append(f"{request.method} {request.path} is no update")
        elif request.method != "DELETE":
            self.violations.append(f"{request.method} {request.path} deletes nothing")
        elif resource != "pods" and self._pods[space]:
            self.violations.append(f"{request.method} {request.path} while there are pods")
        return None

    def _note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            row, resource = change.row, change.row.resource
            more = (not change.deleted) - (change.before is not None)
            if resource == "namespaces" and more < 0 and self._content[row.name]:
                self.violations.append(f"{row.name} went with {self._content[row.name]} objects in it")
            self._content[row.namespace] += more
            self._pods[row.namespace] += more if resource == "pods" else 0


@pytest.mark.virtual(seeds=200)
async def test_deleted_namespaces_are_removed_after_faults() -> None:
    async with Cluster() as cluster:
        checker = RequestChecker(cluster)
        replica = await manage(cluster, checker, faults=0.2)
        for name in (PLAIN, HELD, GUARDED, KEPT):
            await fill(cluster, name)
        await guard(cluster, GUARDED)
        had = await content(cluster, KEPT)
        for name in (PLAIN, HELD, GUARDED):
            await cluster.client.delete(NAMESPACES, Key("", name))
            await cluster.sleep(random_source().uniform(0, 3))
        if random_source().uniform(0, 1) < 0.5:
            await replica.kill()
            replica = await manage(cluster, checker, faults=0.2)
        for _ in range(4):
            await stop_pods(cluster)
        heal(replica)
        await stop_pods(cluster)
        await cluster.sleep(QUIET)
        await stop_pods(cluster)
        await cluster.advance(30)
        assert checker.violations == []
        spaces = {one.metadata.name: one for one in (await cluster.client.list(NAMESPACES)).items}
        assert PLAIN not in spaces
        assert spaces[GUARDED].spec.finalizers == (HOLD,)
        assert await content(cluster, GUARDED) == set()
        assert await content(cluster, KEPT) == had
        assert await content(cluster, HELD) == {"configmaps held/held"}
        remaining = {c.type: (c.status, c.message) for c in spaces[HELD].status.conditions}
        assert remaining["NamespaceContentRemaining"] == (
            "True",
            "Some resources remain: configmaps has 1 resource instance",
        )
        assert remaining["NamespaceFinalizersRemaining"] == (
            "True",
            f"Finalizers of the content remain: {HOLD} in 1 resource instance",
        )
        await cluster.client.patch(CONFIG_MAPS, Key(HELD, "held"), {"metadata": {"finalizers": None}})
        await cluster.advance(30)
        assert HELD not in {one.metadata.name for one in (await cluster.client.list(NAMESPACES)).items}


async def manage(cluster: Cluster, checker: RequestChecker, faults: float) -> Replica:
    replica = await cluster.manage("--controllers=namespace", "--leader-elect=false", faults=faults)
    replica.network.intercept(checker)
    return replica


def heal(replica: Replica) -> None:
    """End all faults and restart silent watches."""
    replica.network.rate = 0
    replica.network.cut()
    replica.network.heal()


async def content(cluster: Cluster, name: str) -> set[str]:
    """Return resource and key of each test object in a namespace."""
    return {
        f"{resource.name} {key_of(obj)}"
        for resource in (PODS, SERVICES, SERVICE_ACCOUNTS, CONFIG_MAPS)
        for obj in (await cluster.client.list(resource.metadata_only(), name)).items
    }
