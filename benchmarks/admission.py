"""Admission of a new pod: what all plugins that are on by default take together, in CPU of the process.

They are asked about pods as they come in, which they complete, in all three phases; the namespace has its account, and
neither limits nor quotas, policies or webhooks. Beside it a chain without plugins is asked about the same pods.
"""

import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any

import msgspec

from apiserver_stub.admission import Admission, AdmissionConfiguration, AdmissionParts, Attributes, enabled
from apiserver_stub.admission.services.addresses import ServiceAddresses
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.authz.rbac import RBACAuthorizer
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.common.offload import Offload
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.interface import Write
from apiserver_stub.storage.memory import MemoryStorage
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.webhooks.egress import DIRECT
from apiserver_stub.webhooks.service_resolver import ServiceResolver
from benchmarks.harness import Result, pod
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.authentication import User

PODS, ROUNDS = 1000, 9
LONGEST = 25.0  # microseconds
USER = User("admin", groups=("system:masters",))


async def run() -> list[Result]:
    """All plugins, by the difference from a chain that has none; of each the best round."""
    async with _parts() as parts:
        chains = Admission(enabled(parts)), Admission()
        best = [min([await _asked(chain, parts) for _ in range(ROUNDS)]) for chain in chains]
    cost = best[0] - best[1]
    return [
        Result("default plugins, a new pod", f"{cost:.1f} µs", f"{LONGEST:.0f} µs", cost / LONGEST, 1.0, at_most=True)
    ]


@asynccontextmanager
async def _parts() -> AsyncIterator[AdmissionParts]:
    async def refuse(*_: Any) -> None:
        raise AssertionError("nothing is written")

    store = WatchCache(MemoryStorage())
    await store.start()
    for resource, key in (("namespaces", "default"), ("serviceaccounts", "default/default")):
        metadata = {"resourceVersion": "", "name": "default", "uid": "u"}
        await store.commit(Write(resource, key, 0, msgspec.json.encode({"metadata": metadata})))
    yield AdmissionParts(
        store,
        built_in(),
        AlwaysAllow(),
        RBACAuthorizer(store),
        ServiceAddresses(store, [ip_network("10.0.0.0/24")], range(30000, 32768)),
        ServiceResolver(store, by_endpoints=False),
        DIRECT,
        Offload(),
        Runtime("admission"),
        FLAGS.parse([]),
        AdmissionConfiguration(),
        refuse,
    )
    await store.close()


async def _asked(chain: Admission, parts: AdmissionParts) -> float:
    """Return the microseconds for a pod, of many that are asked about one after another."""
    kind = parts.kinds.find("", "v1", "pods")
    assert kind is not None
    told = msgspec.json.encode(pod("p"))
    asked = [Attributes("create", kind, "default", "p", "", msgspec.json.decode(told), None, USER) for _ in range(PODS)]
    gc.collect()
    gc.disable()
    began = time.process_time()
    for attributes in asked:
        await chain.mutate(attributes)
        await chain.validate(attributes)
        await chain.allocate(attributes)
    spent = time.process_time() - began
    gc.enable()
    return spent / PODS * 1e6
