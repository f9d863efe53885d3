"""Validating admission policies: what one of three expressions costs a request that it admits, and 200 whose match
conditions do not hold.
"""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from apiserver_stub.admission import Attributes
from apiserver_stub.admission.policies.validating import ValidatingPolicies
from apiserver_stub.authz.always import AlwaysAllow
from apiserver_stub.common.offload import at_once
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.storage.interface import Write
from apiserver_stub.storage.memory import MemoryStorage
from apiserver_stub.watch_cache.cache import WatchCache
from benchmarks.harness import Result
from controller_manager.common.base.registry import Registry
from controller_manager.common.serving.authentication import User

POLICIES, REQUESTS, ROUNDS = 200, 2000, 7
MOST_OF_THREE, MOST_OF_ALL = 30.0, 100.0  # microseconds of a request
GROUP = "admissionregistration.k8s.io"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
THREE = (
    "object.metadata.name != 'x'",
    "!has(object.data) || object.data.size() < 100",
    "object.metadata.labels['app'] in ['x', 'y'] || request.userInfo.username == 'admin'",
)
OBJECT: dict[str, Any] = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "one", "namespace": "default", "labels": {"app": "x"}},
    "data": {"a": "1", "b": "2"},
}


async def run() -> list[Result]:
    """A policy that admits, and many that do not look at the request."""
    three = {"three": {"validations": [{"expression": text} for text in THREE]}}
    many = {
        f"policy-{number}": {
            "validations": [{"expression": "false"}],
            "matchConditions": [{"name": "mine", "expression": f"object.metadata.name == 'other-{number}'"}],
        }
        for number in range(POLICIES)
    }
    return [
        _in_time("a policy of three expressions", await _cost(three), MOST_OF_THREE),
        _in_time(f"{POLICIES} policies that do not match", await _cost(many), MOST_OF_ALL),
    ]


def _in_time(title: str, cost: float, most: float) -> Result:
    return Result(title, f"{cost:.1f} µs", f"{most:.0f} µs", cost / most, 1.0, at_most=True)


async def _cost(policies: Mapping[str, Any]) -> float:
    """The microseconds that policies add to a request: of the rounds the quickest."""
    kinds = built_in()
    store = WatchCache(MemoryStorage())
    await store.start()
    for name, spec in policies.items():
        constraints = {"resourceRules": [RULE]}
        await _put(store, "validatingadmissionpolicies", name, {"matchConstraints": constraints, **spec})
        await _put(
            store, "validatingadmissionpolicybindings", name, {"policyName": name, "validationActions": ["Deny"]}
        )
    plugin = ValidatingPolicies(store, kinds, AlwaysAllow(), Registry(), at_once)
    plugin.plugin().read()
    kind = next(kind for kind in kinds.all() if kind.storage == "configmaps")
    attributes = Attributes("create", kind, "default", "one", "", OBJECT, None, User("admin"))
    if (waiting := plugin.validate(attributes)) is not None:
        await waiting
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REQUESTS):
            if (waiting := plugin.validate(attributes)) is not None:
                await waiting
        best = min(best, time.process_time() - began)
    await store.close()
    return best / REQUESTS * 1e6


async def _put(store: WatchCache, plural: str, name: str, spec: Mapping[str, Any]) -> None:
    tree = {"kind": "", "apiVersion": "", "metadata": {"resourceVersion": "", "name": name, "uid": ""}, "spec": spec}
    await store.commit(Write(f"{plural}.{GROUP}", name, 0, msgspec.json.encode(tree)))
