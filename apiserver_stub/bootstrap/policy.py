"""The default roles and bindings (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`): created in few transactions, and
completed after edits.

| existing object | result |
|--|--|
| missing or unreadable | it is created |
| the annotation `autoupdate` is `false` | unchanged |
| a role that lacks default rules, labels or selectors | they are added; others are kept |
| an aggregated role that should not be one | the aggregation is removed |
| a binding that lacks default subjects or labels | they are added |
| a binding of another role | it is deleted and created again |
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from apiserver_stub.authz.rbac import RoleRules
from apiserver_stub.authz.rbac.rules import parts
from apiserver_stub.bootstrap.objects import MANAGER, Objects
from apiserver_stub.bootstrap.unreadable import remove_unreadable
from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.storage.interface import RevisionConflict, Write
from apiserver_stub.verbs import RequestScope
from apiserver_stub.verbs.field_management import manage_new_fields, now
from apiserver_stub.verbs.storage import for_storage, key_of
from apiserver_stub.watch_cache.row import CorruptRow
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.rbac import AUTO_UPDATE, GROUP, Role, RoleRule
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request
from controller_manager.common.base.random import random_source
from controller_manager.common.serving.authentication import User

_API = f"{GROUP}/v1"
_AUTHOR = {"fieldManager": MANAGER}
_ATTEMPTS = 10
_TOGETHER = 100  # rows per transaction; etcd allows 128
_ROLES = Decoder(Role)
_LABEL = f"{PLATFORM_DOMAIN}/bootstrapping"


async def ensure_policy(scope: RequestScope, objects: Objects, features: frozenset[str] = frozenset()) -> None:
    """Create missing objects and correct the others as in the table above; `features` are the enabled ones. Raises the
    `ApiError` of a failed request.
    """
    policy = _read(features)
    for kind, wanted in _objects(scope, policy):
        await remove_unreadable(scope, kind, *_place(wanted))
    for _ in range(_ATTEMPTS):
        lacking = [_creation(scope, policy, kind, tree) for kind, tree in _objects(scope, policy)]
        writes = [write for write in lacking if write is not None]
        if not writes:
            break
        with suppress(RevisionConflict):  # another server has created some of them; the next attempt creates the rest
            for at in range(0, len(writes), _TOGETHER):
                await scope.store.commit(*writes[at : at + _TOGETHER])
    for kind, wanted in _objects(scope, policy):
        await _correct(scope, objects, kind, wanted)


async def _correct(scope: RequestScope, objects: Objects, kind: ResourceInfo, wanted: Tree) -> None:
    namespace, name = _place(wanted)
    row = scope.store.get(kind.storage, key_of(kind, namespace, name))
    found = None if row is None or isinstance(row, CorruptRow) else read(kind, row.data)
    if found is None or revised(found, wanted) is None:
        return
    collection = f"/apis/{_API}/{f'namespaces/{namespace}/' if namespace else ''}{kind.plural}"
    if found.get("roleRef") != wanted.get("roleRef"):
        await objects.remove(f"{collection}/{name}", found["metadata"]["uid"])
        await objects.ensure_created(collection, wanted)
    else:
        await objects.revise(f"{collection}/{name}", found["metadata"]["uid"], lambda tree: revised(tree, wanted))


def revised(found: Tree, wanted: Tree) -> Tree | None:
    """Return a role or binding corrected as in the table above; None to leave it unchanged."""
    metadata = found["metadata"]
    if (metadata.get("annotations") or {}).get(AUTO_UPDATE) == "false":
        return None
    if found.get("roleRef") != wanted.get("roleRef"):
        return wanted
    noted = {field: {**wanted["metadata"][field], **(metadata.get(field) or {})} for field in ("annotations", "labels")}
    corrected = {**found, "metadata": {**metadata, **noted}}
    for field, lacking in (("rules", _lacking_rules), ("subjects", _lacking_subjects)):
        if more := lacking(found.get(field) or [], wanted.get(field) or []):
            corrected[field] = [*(found.get(field) or []), *more]
    _correct_aggregation(corrected, wanted.get("aggregationRule"))
    return None if corrected == found else corrected


def _lacking_rules(found: list[Tree], wanted: list[Tree]) -> list[Any]:
    unlike = [rule for rule in wanted if rule not in found]
    if not unlike:
        return []
    held = RoleRules(_rules(found))
    lacking = [part for part in parts(_rules(unlike)) if not held.covers(part)]
    return list(msgspec.json.decode(msgspec.json.encode(lacking)))


def _rules(trees: list[Tree]) -> tuple[RoleRule, ...]:
    return _ROLES.decode(msgspec.json.encode({"rules": trees})).rules


def _lacking_subjects(found: list[Tree], wanted: list[Tree]) -> list[Tree]:
    return [subject for subject in wanted if subject not in found]


def _correct_aggregation(corrected: Tree, wanted: Tree | None) -> None:
    found = corrected.get("aggregationRule")
    if wanted is None:
        if found is not None:
            del corrected["aggregationRule"]
        return
    selectors = (found or {}).get("clusterRoleSelectors") or []
    more = [selector for selector in wanted["clusterRoleSelectors"] if selector not in selectors]
    if more:
        corrected["aggregationRule"] = {"clusterRoleSelectors": [*selectors, *more]}


class _Policy(NamedTuple):
    """The default objects, and the rules of aggregated roles by name."""

    wanted: tuple[Tree, ...]
    gathered: Mapping[str, list[Tree]]


def _objects(scope: RequestScope, policy: _Policy) -> Iterator[tuple[ResourceInfo, Tree]]:
    """Yield all objects with their kinds; aggregated roles without the aggregated rules."""
    for tree in policy.wanted:
        kind = scope.kinds.find(GROUP, "v1", f"{tree['kind'].lower()}s")
        assert kind is not None
        yield kind, tree


def _place(wanted: Tree) -> tuple[str, str]:
    """Return namespace and name."""
    return wanted["metadata"].get("namespace", ""), wanted["metadata"]["name"]


def _creation(scope: RequestScope, policy: _Policy, kind: ResourceInfo, wanted: Tree) -> Write | None:
    """Return the write of a new object, as a request to create it would make it; None if there is one."""
    namespace, name = _place(wanted)
    key = key_of(kind, namespace, name)
    if scope.store.get(kind.storage, key) is not None:
        return None
    tree = {**wanted, "metadata": dict(wanted["metadata"])}
    if "aggregationRule" in wanted:
        tree["rules"] = policy.gathered[name]
    request = APIRequest(Request("POST", "/"), User(""), "create", kind, namespace, name, None, _AUTHOR)
    manage_new_fields(scope, request, tree)
    tree["metadata"] |= {"uid": random_source().uid(), "creationTimestamp": now()}
    return Write(kind.storage, key, 0, for_storage(kind, tree))


@cache
def features_with_policy() -> frozenset[str]:
    """Return the features on which roles depend."""
    return frozenset(gate for raw in _load("policy_by_feature.json") for gate in raw["gates"])


def _load(name: str) -> list[Tree]:
    found: list[Tree] = msgspec.json.decode(resources.files(__package__).joinpath(name).read_bytes())
    return found


def _with_features(features: frozenset[str]) -> list[Tree]:
    """Return the default objects with these features, which add objects and rules."""
    found = {(raw["kind"], raw.get("namespace", ""), raw["name"]): raw for raw in _load("policy.json")}
    for raw in _load("policy_by_feature.json"):
        if features.issuperset(raw.pop("gates")):
            before = found.setdefault((raw["kind"], "", raw["name"]), raw)
            if before is not raw:
                before["rules"] = [*before["rules"], *raw["rules"]]
    return list(found.values())


@cache
def _read(features: frozenset[str]) -> _Policy:
    wanted, gathered = [], {}
    for raw in _with_features(features):
        metadata: Tree = {"name": raw.pop("name"), "annotations": {AUTO_UPDATE: "true"}}
        metadata["labels"] = {_LABEL: "rbac-defaults", **raw.pop("labels", {})}
        if "namespace" in raw:
            metadata["namespace"] = raw.pop("namespace")
        if "aggregationRule" in raw:
            gathered[metadata["name"]] = raw.pop("rules")
        wanted.append({"apiVersion": _API, **raw, "metadata": metadata})
    return _Policy(tuple(wanted), gathered)
