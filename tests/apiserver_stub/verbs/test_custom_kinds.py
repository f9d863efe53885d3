"""Custom objects in the verbs: stored objects are complete and returned unchanged."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from apiserver_stub.admission import Admission, Attributes, Rule
from apiserver_stub.apis.apiextensions.resources import resources_of
from apiserver_stub.kinds.registry import ResourceRegistry, built_in
from apiserver_stub.verbs import Verbs
from apiserver_stub.verbs.scope import RequestScope
from tests.apiserver_stub.verbs.conftest import started_api

THINGS = "/apis/example.com/v1/namespaces/default/things"
SPEC = {"type": "object", "properties": {"mode": {"type": "string", "default": "slow"}, "size": {"type": "integer"}}}
RULES = [{"rule": "self.mode == 'slow'", "message": "too fast"}]
DEFINITION = {
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {**SPEC, "x-kubernetes-validations": RULES}},
            }},
        }],
    },
}  # fmt: skip
(THING,) = resources_of(DEFINITION)


def thing(name: str, **spec: Any) -> Any:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def api() -> AsyncIterator[Any]:
    kinds = ResourceRegistry()
    for kind in (*built_in().all(), THING):
        kinds.add(kind)
    async with started_api(kinds) as found:
        yield found


def row(api: Any, name: str) -> Any:
    return api.store.get("things.example.com", f"default/{name}")


async def test_response_equals_stored_object(api: Any) -> None:
    made = await api.post(THINGS, thing("a", size=1))
    assert made.tree["spec"] == {"mode": "slow", "size": 1}
    assert (row(api, "a").settled, row(api, "a").data + b"\n") == (THING.serial, made.body)
    changed = await api.put(f"{THINGS}/a", made.tree | {"spec": {"size": 2}})
    assert changed.tree["spec"] == {"mode": "slow", "size": 2}
    assert (row(api, "a").settled, row(api, "a").data + b"\n") == (THING.serial, changed.body)
    assert (await api.get(f"{THINGS}/a")).body == changed.body


async def test_defaults_removed_by_admission_are_restored(api: Any) -> None:
    async def forget(attributes: Attributes) -> None:
        attributes.tree["spec"].pop("mode")

    rule = Rule(forget, ("create",), ("things.example.com",))
    api.verbs = Verbs(RequestScope(api.store, api.hub, api.kinds, Admission.of(mutating=[rule])))
    made = await api.post(THINGS, thing("a", size=1))
    assert made.tree["spec"] == orjson.loads(row(api, "a").data)["spec"] == {"mode": "slow", "size": 1}
    assert row(api, "a").data + b"\n" == made.body
