"""RBAC decisions while roles and bindings change, compared with a slow reading of the same objects."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from apiserver_stub.authz.rbac import RBACAuthorizer, authorizer
from apiserver_stub.authz.rbac.bindings import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Row
from controller_manager.common.api.rbac import GROUP
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    AllowedResources,
    AuthorizerAttributes,
    Decision,
    NonResourceRule,
    Rules,
)
from tests.apiserver_stub.memory_backend import MemoryBackend

JANE = User("jane", groups=("dev", "system:authenticated"))
ROBOT = User("system:serviceaccount:a:robot", groups=("system:serviceaccounts",))
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


def subject(kind: str, name: str, namespace: str = "") -> dict[str, str]:
    return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {"apiGroup": GROUP})}


class Cluster:
    """Roles and bindings in a store, and an authorizer on it."""

    def __init__(self) -> None:
        self.store = WatchCache(EmbeddedStorage(MemoryBackend()))
        self.rbac = RBACAuthorizer(self.store)

    async def put(self, resource: str, key: str, tree: Mapping[str, Any] | None) -> None:
        row = self.store.get(resource, key)
        revision = row.revision if row else 0
        name = key.rpartition("/")[2]
        whole = {"kind": "K", "apiVersion": f"{GROUP}/v1", "metadata": {"name": name, "uid": "u"}, **(tree or {})}
        whole["metadata"]["resourceVersion"] = ""
        data = json.dumps(whole, separators=(",", ":")).encode()
        await self.store.commit(Write(resource, key, revision, data, tree is None))

    async def bind(self, key: str, role: str, *subjects: Any, kind: str = "ClusterRole") -> None:
        reference = {"apiGroup": GROUP, "kind": kind, "name": role}
        resource = BINDINGS if "/" in key else CLUSTER_BINDINGS
        await self.put(resource, key, {"roleRef": reference, "subjects": list(subjects)})

    def decide(self, user: User, verb: str, resource: str, namespace: str = "", name: str = "") -> tuple[Decision, str]:
        plural, _, subresource = resource.partition("/")
        return self.rbac.decide(AuthorizerAttributes(user, verb, "", "", "v1", plural, subresource, namespace, name))[
            :2
        ]

    def allows(self, user: User, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return self.decide(user, verb, resource, namespace, name)[0] is Decision.ALLOW


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    found = Cluster()
    await found.store.start()
    found.rbac.read()
    yield found
    await found.store.close()


async def test_binding_grants_with_reason(cluster: Cluster) -> None:
    await cluster.put(ROLES, "a/r", {"rules": [READ_PODS]})
    assert cluster.decide(JANE, "list", "pods", "a") == (Decision.NO_OPINION, "")
    await cluster.bind("a/b", "r", subject("User", "jane"), kind="Role")
    why = 'RBAC: allowed by RoleBinding "b/a" of Role "r" to User "jane"'
    assert cluster.decide(JANE, "list", "pods", "a") == (Decision.ALLOW, why)
    assert not cluster.allows(JANE, "list", "pods", "b")
    assert not cluster.allows(JANE, "list", "pods")
    assert not cluster.allows(JANE, "delete", "pods", "a")
    assert not cluster.allows(ROBOT, "list", "pods", "a")


async def test_groups_and_service_accounts_are_bound(cluster: Cluster) -> None:
    await cluster.put(CLUSTER_ROLES, "reader", {"rules": [READ_PODS]})
    await cluster.bind("all", "reader", subject("Group", "dev"), subject("ServiceAccount", "robot", "a"))
    why = 'RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to Group "dev"'
    assert cluster.decide(JANE, "get", "pods", "anywhere", "p") == (Decision.ALLOW, why)
    why = 'RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to ServiceAccount "robot/a"'
    assert cluster.decide(ROBOT, "get", "pods") == (Decision.ALLOW, why)
    assert not cluster.allows(User("system:serviceaccount:b:robot"), "get", "pods")


async def test_account_without_namespace_uses_that_of_binding(cluster: Cluster) -> None:
    await cluster.put(CLUSTER_ROLES, "reader", {"rules": [READ_PODS]})
    await cluster.bind("a/b", "reader", {"kind": "ServiceAccount", "name": "robot"})
    why = 'RBAC: allowed by RoleBinding "b/a" of ClusterRole "reader" to ServiceAccount "robot/a"'
    assert cluster.decide(ROBOT, "get", "pods", "a") == (Decision.ALLOW, why)
    await cluster.bind("everywhere", "reader", {"kind": "ServiceAccount", "name": "robot"})
    assert not cluster.allows(ROBOT, "get", "pods", "b")


async def test_missing_role_is_reported(cluster: Cluster) -> None:
    await cluster.bind("one", "gone", subject("User", "jane"))
    missing = 'clusterrole.rbac.authorization.k8s.io "gone" not found'
    assert cluster.decide(JANE, "get", "pods", "a") == (Decision.NO_OPINION, f"RBAC: {missing}")
    await cluster.bind("a/two", "lost", subject("Group", "dev"), kind="Role")
    other = 'role.rbac.authorization.k8s.io "lost" not found'
    assert cluster.decide(JANE, "get", "pods", "a") == (Decision.NO_OPINION, f"RBAC: [{missing}, {other}]")
    assert (await cluster.rbac.rules_for(JANE, "a")).error == f"[{missing}, {other}]"
    await cluster.put(CLUSTER_ROLES, "gone", {"rules": [READ_PODS]})
    assert cluster.allows(JANE, "get", "pods", "a")


async def test_changes_take_effect_immediately(cluster: Cluster) -> None:
    await cluster.put(CLUSTER_ROLES, "reader", {"rules": [READ_PODS]})
    await cluster.bind("b", "reader", subject("User", "jane"))
    assert cluster.allows(JANE, "get", "pods")
    await cluster.put(CLUSTER_ROLES, "reader", {"rules": []})
    assert not cluster.allows(JANE, "get", "pods")
    await cluster.put(CLUSTER_ROLES, "reader", {"rules": None})
    assert not cluster.allows(JANE, "get", "pods")
    await cluster.put(CLUSTER_ROLES, "reader", {"rules": [READ_PODS]})
    assert cluster.allows(JANE, "get", "pods")
    await cluster.bind("b", "reader", subject("User", "john"))
    assert not cluster.allows(JANE, "get", "pods")
    await cluster.bind("b", "reader", subject("User", "jane"))
    await cluster.put(CLUSTER_BINDINGS, "b", None)
    assert not cluster.allows(JANE, "get", "pods")


async def test_resource_names_limit_access(cluster: Cluster) -> None:
    await cluster.put(CLUSTER_ROLES, "some", {"rules": [{**READ_PODS, "resourceNames": ["mine"]}]})
    await cluster.bind("b", "some", subject("User", "jane"))
    assert [cluster.allows(JANE, "get", "pods", "a", name) for name in ("mine", "yours", "")] == [True, False, False]


async def test_rules_of_user_include_roles_and_paths(cluster: Cluster) -> None:
    paths = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    await cluster.put(CLUSTER_ROLES, "paths", {"rules": [paths]})
    await cluster.put(ROLES, "a/r", {"rules": [{**READ_PODS, "resourceNames": ["mine"]}]})
    await cluster.bind("all", "paths", subject("Group", "dev"))
    await cluster.bind("a/b", "r", subject("User", "jane"), kind="Role")
    rules = Rules(
        (AllowedResources(("get", "list"), ("",), ("pods",), ("mine",)),), (NonResourceRule(("get",), ("/metrics",)),)
    )
    assert await cluster.rbac.rules_for(JANE, "a") == rules
    assert (await cluster.rbac.rules_for(JANE, "b")).resource_rules == ()
    assert cluster.rbac.decide(AuthorizerAttributes(JANE, "get", "/metrics")).decision is Decision.ALLOW


async def test_cache_size_is_limited(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "MOST_REMEMBERED", 50)
    await cluster.put(CLUSTER_ROLES, "reader", {"rules": [READ_PODS]})
    await cluster.bind("b", "reader", subject("Group", "dev"))
    for number in range(1000):
        user = User(f"u{number % 7}", groups=("dev",))
        assert cluster.allows(user, "get", "pods")
        assert not cluster.allows(user, "get", f"r{number}")
    views = [view for views in cluster.rbac._views.values() for view in views.values()]
    assert sum(1 + len(view.known) for view in views) <= 51


NAMES = st.sampled_from(["x", "y"])
PLACES = st.sampled_from(["", "a/", "b/"])
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "apiGroups": st.just([""]),
            "resources": st.lists(st.sampled_from(["pods", "*", "pods/log", "*/log"]), min_size=1, max_size=2),
            "verbs": st.lists(st.sampled_from(["get", "list", "*"]), min_size=1, max_size=2),
            "resourceNames": st.lists(st.sampled_from(["m", "n"]), max_size=1),
        }
    ),
    max_size=2,
)
SUBJECTS = st.lists(
    st.sampled_from([subject("User", "jane"), subject("Group", "dev"), subject("ServiceAccount", "robot", "a")]),
    max_size=2,
)


class RBACMachine(RuleBasedStateMachine):
    """Roles and bindings are added, changed and removed; every decision equals that of reading all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rbac = RBACAuthorizer(self)
        self.rbac.read()
        self.objects: dict[tuple[str, str], Any] = {}

    def snapshot(self, resource: str) -> Any:
        return {}

    def subscribe(self, subscriber: Any) -> None:
        self.notify = subscriber

    def change(self, resource: str, key: str, tree: Any) -> None:
        deleted = tree is None
        if deleted:
            self.objects.pop((resource, key), None)
        else:
            self.objects[resource, key] = tree
        self.notify([Change(Row(resource, key, 1, json.dumps(tree or {}).encode()), None, deleted, 0.0)])

    @rule(place=PLACES, name=NAMES, rules=st.none() | RULES)
    def role(self, place: str, name: str, rules: Any) -> None:
        tree = None if rules is None else {"rules": rules}
        self.change(ROLES if place else CLUSTER_ROLES, place + name, tree)

    @rule(place=PLACES, name=NAMES, role=NAMES, kind=st.sampled_from(["Role", "ClusterRole"]), to=st.none() | SUBJECTS)
    def bind(self, place: str, name: str, role: str, kind: str, to: Any) -> None:
        tree = None if to is None else {"roleRef": {"kind": kind, "name": role}, "subjects": to}
        self.change(BINDINGS if place else CLUSTER_BINDINGS, place + name, tree)

    @invariant()
    def decisions_match(self) -> None:
        for user in (JANE, ROBOT):
            for namespace in ("", "a"):
                for verb, subresource, name in (("get", "", "m"), ("list", "log", ""), ("get", "log", "n")):
                    attributes = AuthorizerAttributes(user, verb, "", "", "v1", "pods", subresource, namespace, name)
                    allowed = self.rbac.decide(attributes).decision is Decision.ALLOW
                    assert allowed == self.slow_decision(attributes), attributes

    def slow_decision(self, asked: AuthorizerAttributes) -> bool:
        combined = f"pods/{asked.subresource}" if asked.subresource else "pods"
        fitting = {"*", combined, *([f"*/{asked.subresource}"] if asked.subresource else [])}
        for (resource, key), tree in self.objects.items():
            namespace = key.rpartition("/")[0]
            if resource not in (BINDINGS, CLUSTER_BINDINGS) or namespace not in ("", asked.namespace):
                continue
            names = {("User", asked.user.name), *(("Group", group) for group in asked.user.groups)}
            if asked.user is ROBOT:
                names.add(("ServiceAccount", "robot"))
            if not any((each["kind"], each["name"]) in names for each in tree["subjects"]):
                continue
            reference = tree["roleRef"]
            place = (
                (ROLES, f"{namespace}/{reference['name']}")
                if reference["kind"] == "Role"
                else (CLUSTER_ROLES, reference["name"])
            )
            for each in self.objects.get(place, {}).get("rules", ()):
                named = not each["resourceNames"] or asked.name in each["resourceNames"]
                if named and {"*", asked.verb} & set(each["verbs"]) and fitting & set(each["resources"]):
                    return True
        return False


RBACMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestChanges = RBACMachine.TestCase
