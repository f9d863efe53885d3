"""Which requests match a webhook or a policy, and in which version of the resource."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver_stub.admission.chain import Attributes, Operation
from apiserver_stub.admission.matching import MatchCriteria, Matcher, MatchIndex, is_exempt, kind_of, namespace_of
from apiserver_stub.kinds.registry import ResourceRegistry, built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import NotFound
from controller_manager.common.serving.authentication import User
from tests.apiserver_stub.memory_backend import MemoryBackend

Tree = dict[str, Any]
KINDS = built_in()
PODS, NAMESPACES, NODES = (KINDS.find("", "v1", plural) for plural in ("pods", "namespaces", "nodes"))
DEPLOYMENTS = KINDS.find("apps", "v1", "deployments")
V1, V2 = (KINDS.find("autoscaling", version, "horizontalpodautoscalers") for version in ("v1", "v2"))
EVENTS, NEW_EVENTS = KINDS.find("", "v1", "events"), KINDS.find("events.k8s.io", "v1", "events")


def attributes_of(
    info: ResourceInfo | None,
    operation: Operation = "create",
    *,
    name: str = "a",
    namespace: str = "team",
    subresource: str = "",
    new: Tree | None = None,
    old: Tree | None = None,
) -> Attributes:
    assert info is not None
    within = namespace if info.namespaced else ""
    return Attributes(operation, info, within, name, subresource, new, old, User("alice"))


def rule(resource: str, group: str = "", version: str = "v1", operation: str = "*", **more: Any) -> Tree:
    return {"operations": [operation], "apiGroups": [group], "apiVersions": [version], "resources": [resource], **more}


def labelled(**labels: str) -> Tree:
    return {"metadata": {"labels": labels}}


@pytest.fixture
async def store() -> AsyncIterator[WatchCache]:
    """A store with the labeled namespace `team`."""
    store = WatchCache(EmbeddedStorage(MemoryBackend()))
    await store.start()
    data = b'{"metadata":{"resourceVersion":"","name":"team","labels":{"env":"prod"}}}'
    await store.commit(Write("namespaces", "team", 0, data))
    yield store
    await store.close()


@pytest.mark.parametrize(
    ("attributes", "rules", "matches"),
    [
        (attributes_of(PODS), [rule("pods")], True),
        (attributes_of(PODS), [rule("pods", operation="CREATE")], True),
        (attributes_of(PODS, "update"), [rule("pods", operation="CREATE")], False),
        (attributes_of(PODS, "connect", subresource="exec"), [rule("pods/exec", operation="CONNECT")], True),
        (attributes_of(PODS), [rule("pods", group="apps")], False),
        (attributes_of(PODS), [rule("pods", group="*")], True),
        (attributes_of(PODS), [rule("pods", version="v2")], False),
        (attributes_of(PODS), [rule("pods", version="*")], True),
        (attributes_of(PODS), [rule("*")], True),
        (attributes_of(PODS), [rule("*/*")], True),
        (attributes_of(PODS), [rule("*/status")], False),
        (attributes_of(PODS), [rule("pods/*")], True),
        (attributes_of(PODS, "update", subresource="status"), [rule("*")], False),
        (attributes_of(PODS, "update", subresource="status"), [rule("pods/*")], True),
        (attributes_of(PODS, "update", subresource="status"), [rule("*/status")], True),
        (attributes_of(PODS, "update", subresource="status"), [rule("*/*")], True),
        (attributes_of(PODS), [rule("services"), rule("pods")], True),
        (attributes_of(PODS), [rule("pods", scope="Namespaced")], True),
        (attributes_of(PODS), [rule("pods", scope="Cluster")], False),
        (attributes_of(PODS), [rule("pods", scope="*")], True),
        (attributes_of(NODES), [rule("nodes", scope="Cluster")], True),
        (attributes_of(NODES), [rule("nodes", scope="Namespaced")], False),
        (attributes_of(NAMESPACES), [rule("namespaces", scope="Cluster")], True),
        (attributes_of(NAMESPACES), [rule("namespaces", scope="Namespaced")], False),
        (attributes_of(PODS), [], False),
    ],
)
def test_webhook_rules_match_requests(
    attributes: Attributes, rules: list[Tree], matches: bool, store: WatchCache
) -> None:
    criteria = MatchCriteria.of_webhook({"rules": rules, "matchPolicy": "Exact"})
    assert (Matcher(store, KINDS).match(criteria, attributes) is not None) is matches


@pytest.mark.parametrize(
    ("info", "policy", "rules", "seen"),
    [
        (V1, "Exact", [rule("horizontalpodautoscalers", "autoscaling", "v2")], None),
        (V1, "Equivalent", [rule("horizontalpodautoscalers", "autoscaling", "v2")], V2),
        (V2, "Equivalent", [rule("horizontalpodautoscalers", "autoscaling", "v1")], V1),
        (V1, "Equivalent", [rule("horizontalpodautoscalers", "autoscaling", "*")], V1),
        (
            V1,
            "Equivalent",
            [rule("*", "autoscaling", "v2"), rule("horizontalpodautoscalers", "autoscaling", "v1")],
            V1,
        ),
        (EVENTS, "Equivalent", [rule("events", "events.k8s.io")], NEW_EVENTS),
        (NEW_EVENTS, "Equivalent", [rule("events")], EVENTS),
        (NEW_EVENTS, "Exact", [rule("events")], None),
    ],
)
def test_equivalent_policy_matches_other_versions(
    info: ResourceInfo, policy: str, rules: list[Tree], seen: ResourceInfo | None, store: WatchCache
) -> None:
    criteria = MatchCriteria.of_webhook({"rules": rules, "matchPolicy": policy})
    assert Matcher(store, KINDS).match(criteria, attributes_of(info)) is seen


def test_equivalent_version_must_have_the_subresource(store: WatchCache) -> None:
    criteria = MatchCriteria.of_webhook(
        {
            "rules": [rule("horizontalpodautoscalers/status", "autoscaling", "v2")],
            "matchPolicy": "Equivalent",
        }
    )
    assert Matcher(store, KINDS).match(criteria, attributes_of(V1, "update", subresource="status")) is V2
    criteria = MatchCriteria.of_webhook(
        {
            "rules": [rule("horizontalpodautoscalers/*", "autoscaling", "v2")],
            "matchPolicy": "Equivalent",
        }
    )
    assert Matcher(store, KINDS).match(criteria, attributes_of(V1, "update", subresource="scale")) is None


@pytest.mark.parametrize(
    ("resources", "name", "matches"),
    [
        ({}, "a", True),
        ({"resourceRules": [rule("pods", resourceNames=["a", "b"])]}, "a", True),
        ({"resourceRules": [rule("pods", resourceNames=["a", "b"])]}, "c", False),
        ({"resourceRules": [rule("pods", resourceNames=["a"])]}, "", False),
        ({"resourceRules": [rule("pods", resourceNames=["b"]), rule("pods")]}, "a", True),
        ({"excludeResourceRules": [rule("pods")]}, "a", False),
        ({"excludeResourceRules": [rule("pods", resourceNames=["a"])]}, "a", False),
        ({"excludeResourceRules": [rule("pods", resourceNames=["a"])]}, "b", True),
        ({"resourceRules": [rule("pods")], "excludeResourceRules": [rule("services")]}, "a", True),
        ({"resourceRules": [rule("pods")], "excludeResourceRules": [rule("*")]}, "a", False),
    ],
)
def test_resource_names_and_exclude_rules_match(resources: Tree, name: str, matches: bool, store: WatchCache) -> None:
    criteria, attributes = MatchCriteria.of_resources(resources), attributes_of(PODS, name=name)
    matcher = Matcher(store, KINDS)
    assert (matcher.match(criteria, attributes) is not None) is matches
    index = MatchIndex(matcher, [(criteria, "policy")])
    for _ in range(2):  # computed, and from the cache
        assert list(index.matching(attributes)) == ([("policy", PODS)] if matches else [])


def test_exclude_rules_apply_to_every_version(store: WatchCache) -> None:
    excluded = [rule("horizontalpodautoscalers", "autoscaling", "v2")]
    matcher = Matcher(store, KINDS)
    for policy, matches in (("Exact", True), ("Equivalent", False)):
        criteria = MatchCriteria.of_resources({"excludeResourceRules": excluded, "matchPolicy": policy})
        assert (matcher.match(criteria, attributes_of(V1)) is not None) is matches


@pytest.mark.parametrize(
    ("attributes", "selector", "matches"),
    [
        (attributes_of(PODS), {"matchLabels": {"env": "prod"}}, True),
        (attributes_of(PODS), {"matchLabels": {"env": "test"}}, False),
        (attributes_of(PODS), {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}, False),
        (attributes_of(NODES), {"matchLabels": {"env": "test"}}, True),
        (attributes_of(NAMESPACES, name="team", new=labelled(env="test")), {"matchLabels": {"env": "test"}}, True),
        (
            attributes_of(NAMESPACES, "update", name="team", new=labelled(env="test")),
            {"matchLabels": {"env": "prod"}},
            False,
        ),
        (attributes_of(NAMESPACES, "delete", name="team"), {"matchLabels": {"env": "prod"}}, True),
        (
            attributes_of(NAMESPACES, "update", name="team", subresource="status", new=labelled()),
            {"matchLabels": {"env": "prod"}},
            True,
        ),
    ],
)
def test_namespace_selectors_match(attributes: Attributes, selector: Tree, matches: bool, store: WatchCache) -> None:
    criteria = MatchCriteria.of_webhook({"rules": [rule("*"), rule("*/status")], "namespaceSelector": selector})
    assert (Matcher(store, KINDS).match(criteria, attributes) is not None) is matches


def test_missing_namespace_fails_only_namespace_selectors(store: WatchCache) -> None:
    matcher, attributes = Matcher(store, KINDS), attributes_of(PODS, namespace="gone")
    selector = {"matchLabels": {"env": "prod"}}
    with pytest.raises(NotFound, match='namespaces "gone" not found'):
        matcher.match(MatchCriteria.of_webhook({"rules": [rule("pods")], "namespaceSelector": selector}), attributes)
    others = {"rules": [rule("services")], "namespaceSelector": selector}
    assert matcher.match(MatchCriteria.of_webhook(others), attributes) is None
    assert matcher.match(MatchCriteria.of_webhook({"rules": [rule("pods")]}), attributes) is PODS


@pytest.mark.parametrize(
    ("attributes", "matches"),
    [
        (attributes_of(PODS, new=labelled(app="a")), True),
        (attributes_of(PODS, new=labelled(app="b")), False),
        (attributes_of(PODS, "update", new=labelled(), old=labelled(app="a")), True),
        (attributes_of(PODS, "delete", old=labelled(app="a")), True),
        (attributes_of(PODS, "delete", old={"metadata": {}}), False),
        (attributes_of(PODS, "connect", subresource="exec", new={"container": "c"}), False),
    ],
)
def test_object_selectors_match(attributes: Attributes, matches: bool, store: WatchCache) -> None:
    selector = {"matchLabels": {"app": "a"}}
    criteria = MatchCriteria.of_webhook({"rules": [rule("*"), rule("*/*")], "objectSelector": selector})
    assert (Matcher(store, KINDS).match(criteria, attributes) is not None) is matches


def test_object_selector_never_matches_connect_options(store: WatchCache) -> None:
    absent = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    criteria = MatchCriteria.of_webhook({"rules": [rule("*/*")], "objectSelector": absent})
    matcher = Matcher(store, KINDS)
    assert matcher.match(criteria, attributes_of(PODS, new={})) is PODS
    assert matcher.match(criteria, attributes_of(PODS, "connect", subresource="exec", new={})) is None


def test_index_evaluates_selectors_lazily(store: WatchCache) -> None:
    pod = labelled(app="a")
    of = [
        (MatchCriteria.of_webhook({"rules": [rule("pods")], "objectSelector": {"matchLabels": {"app": app}}}), app)
        for app in "abc"
    ]
    found = []
    for app, _ in MatchIndex(Matcher(store, KINDS), of).matching(attributes_of(PODS, new=pod)):
        found.append(app)
        pod["metadata"]["labels"]["app"] = "c"
    assert found == ["a", "c"]


def test_index_includes_new_resources(store: WatchCache) -> None:
    kinds = ResourceRegistry(info for info in KINDS.all() if info is not V2)
    criteria = MatchCriteria.of_webhook(
        {
            "rules": [rule("horizontalpodautoscalers", "autoscaling", "v2")],
            "matchPolicy": "Equivalent",
        }
    )
    index = MatchIndex(Matcher(store, kinds), [(criteria, "webhook")])
    assert not list(index.matching(attributes_of(V1)))
    assert V2 is not None
    kinds.add(V2)
    assert list(index.matching(attributes_of(V1))) == [("webhook", V2)]


def test_kind_and_namespace_of_requests() -> None:
    assert PODS is not None
    assert DEPLOYMENTS is not None
    assert kind_of(PODS, "") == ("", "v1", "Pod")
    assert kind_of(PODS, "exec") == ("", "v1", "PodExecOptions")
    assert kind_of(PODS, "eviction") == ("policy", "v1", "Eviction")
    assert kind_of(DEPLOYMENTS, "scale") == ("autoscaling", "v1", "Scale")
    assert namespace_of(attributes_of(PODS)) == "team"
    assert namespace_of(attributes_of(NAMESPACES, name="new")) == "new"
    assert namespace_of(attributes_of(NODES)) == ""


def test_admission_configurations_are_exempt() -> None:
    exempt = {info.plural for info in KINDS.all() if is_exempt(info)}
    assert exempt == {
        "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies",
        "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
    }  # fmt: skip
