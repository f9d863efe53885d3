"""Namespaces are deleted while everything goes wrong, by seed, in virtual time.

Invariants, looked at after every change of the store:
  - a namespace goes only when nothing is left in it;
  - nothing outside of namespaces that are being deleted is deleted by the controller, or touched in any way;
  - while a namespace has pods, nothing else in it is deleted by the controller;
  - the finalizers of others stay where they are, in the namespace and in what is in it.
Once it is quiet:
  - a namespace whose content somebody holds by a finalizer is there with that content alone, and says so;
  - every other one that was deleted is gone, unless a finalizer of its own holds it;
  - every one that was not has all it had.
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
from tests.scenarios.trials import SmallDiscovery

HOLD = "example.org/hold"
# The namespaces: the first three are deleted, and content of the second and the third itself are held by somebody.
PLAIN, HELD, GUARDED, KEPT = "plain", "held", "guarded", "kept"
QUIET = 40.0
DISCOVERY = SmallDiscovery(pods="Pod", services="Service", serviceaccounts="ServiceAccount", configmaps="ConfigMap")


async def fill(cluster: Cluster, name: str) -> None:
    """Some content, by chance; of the one that is held, a config map has a finalizer of somebody."""
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
    """A pod on a node, which takes its time to go."""
    return replace(pod, spec=replace(pod.spec, node_name="node"))


async def stop_pods(cluster: Cluster) -> None:
    """What the node does with pods that are to go."""
    for pod in (await cluster.client.list(PODS)).items:
        if pod.metadata.deletion_timestamp is not None:
            await cluster.client.delete(PODS, key_of(pod), grace=0)
        await cluster.sleep(random_source().uniform(0, 3))


async def guard(cluster: Cluster, name: str) -> None:
    """Have somebody's finalizer beside the one every namespace has."""
    found: Namespace = await cluster.client.get(NAMESPACES, Key("", name))
    spec = replace(found.spec, finalizers=("kubernetes", HOLD))
    await cluster.client.update(NAMESPACES, replace(found, spec=spec), subresource="finalize")


class Watchman:
    """Looks at every request of managers before it is answered, and at every change of the store."""

    def __init__(self, cluster: Cluster) -> None:
        self._content: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()
        self.offences: list[str] = []
        cluster.api.store.subscribe(self._note)

    def __call__(self, request: Request) -> Response | None:
        """Remember what is asked for; let it pass, but for discovery."""
        if (answer := DISCOVERY(request)) is not None:
            return answer
        parts = request.path.strip("/").split("/")
        if request.method == "GET" or {"leases", "events"} & set(parts[-2:]):
            return None
        space = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        resource = parts[parts.index(space) + 1] if space and parts[-1] != space else ""
        if space not in (PLAIN, HELD, GUARDED):
            self.offences.append(f"{request.method} {request.path} is outside")
        elif resource in ("status", "finalize"):
            if request.method != "PUT":
                self.offences.append(f"{request.method} {request.path} is no update")
        elif request.method != "DELETE":
            self.offences.append(f"{request.method} {request.path} deletes nothing")
        elif resource != "pods" and self._pods[space]:
            self.offences.append(f"{request.method} {request.path} while there are pods")
        return None

    def _note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            row, resource = change.row, change.row.resource
            more = (not change.deleted) - (change.before is not None)
            if resource == "namespaces" and more < 0 and self._content[row.name]:
                self.offences.append(f"{row.name} went with {self._content[row.name]} objects in it")
            self._content[row.namespace] += more
            self._pods[row.namespace] += more if resource == "pods" else 0


@pytest.mark.virtual(seeds=200)
async def test_namespaces_go_whatever_goes_wrong() -> None:
    async with Cluster() as cluster:
        watchman = Watchman(cluster)
        replica = await manage(cluster, watchman, faults=0.2)
        for name in (PLAIN, HELD, GUARDED, KEPT):
            await fill(cluster, name)
        await guard(cluster, GUARDED)
        had = await content(cluster, KEPT)
        for name in (PLAIN, HELD, GUARDED):
            await cluster.client.delete(NAMESPACES, Key("", name))
            await cluster.sleep(random_source().uniform(0, 3))
        if random_source().uniform(0, 1) < 0.5:
            await replica.kill()
            replica = await manage(cluster, watchman, faults=0.2)
        for _ in range(4):
            await stop_pods(cluster)
        heal(replica)
        await stop_pods(cluster)
        await cluster.sleep(QUIET)
        await stop_pods(cluster)
        await cluster.advance(30)
        assert watchman.offences == []
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


async def manage(cluster: Cluster, watchman: Watchman, faults: float) -> Replica:
    replica = await cluster.manage("--controllers=namespace", "--leader-elect=false", faults=faults)
    replica.network.intercept(watchman)
    return replica


def heal(replica: Replica) -> None:
    """Nothing fails any more, and watches that fell silent are opened anew."""
    replica.network.rate = 0
    replica.network.cut()
    replica.network.heal()


async def content(cluster: Cluster, name: str) -> set[str]:
    """Resource and key of everything these tests put in a namespace."""
    return {
        f"{resource.name} {key_of(obj)}"
        for resource in (PODS, SERVICES, SERVICE_ACCOUNTS, CONFIG_MAPS)
        for obj in (await cluster.client.list(resource.metadata_only(), name)).items
    }
