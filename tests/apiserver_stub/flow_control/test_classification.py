"""The flow schema, flow and queues of a request."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.flow_control.classification import classify, deal, distinguisher, flow_hash, usable_schemas
from apiserver_stub.flow_control.configuration import FlowSchema, PriorityLevelConfiguration
from apiserver_stub.kinds.strategies.flow_control import suggested
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.serving.authentication import User


def schema(name: str, spec: object) -> FlowSchema:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, FlowSchema)


SUGGESTED = [schema(name, spec) for name, spec in suggested().schemas.items()]
ORDERED = usable_schemas(SUGGESTED, suggested().levels)


def user(name: str, *groups: str) -> User:
    return User(name, groups=(*groups, "system:authenticated"))


SCHEDULER, MANAGER = user("system:kube-scheduler"), user("system:kube-controller-manager")
NODE = user("system:node:n", "system:nodes")
ACCOUNT = user("system:serviceaccount:default:x", "system:serviceaccounts")
SYSTEM_ACCOUNT = user("system:serviceaccount:kube-system:x", "system:serviceaccounts")
LOOK_ALIKE = user("system:serviceaccount:kube-system2:x", "system:serviceaccounts")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"


@pytest.mark.parametrize(
    ("who", "method", "path", "expected"),
    [
        (user("admin", "system:masters"), "GET", "/api/v1/pods", "exempt"),
        (user("admin", "system:masters"), "POST", "/anything", "exempt"),
        (user("nobody"), "GET", "/api/v1/namespaces/default", "global-default"),
        (User("system:anonymous", groups=("system:unauthenticated",)), "GET", "/api", "global-default"),
        (User("x", groups=("system:unauthenticated",)), "GET", "/healthz", "probes"),
        (user("x"), "GET", "/livez", "probes"),
        (user("x"), "GET", "/readyz/ping", "probes"),
        (user("x"), "GET", "/readyzed", "global-default"),
        (user("x"), "POST", "/readyz", "global-default"),
        (SCHEDULER, "GET", LEASE, "system-leader-election"),
        (SCHEDULER, "DELETE", LEASE, "kube-scheduler"),
        (SCHEDULER, "GET", "/version", "kube-scheduler"),
        (MANAGER, "PUT", LEASE, "system-leader-election"),
        (MANAGER, "GET", "/api/v1/pods", "kube-controller-manager"),
        (NODE, "GET", "/api/v1/nodes", "system-node-high"),
        (NODE, "PATCH", "/api/v1/nodes/n/status", "system-node-high"),
        (NODE, "GET", "/api/v1/nodes/n/proxy", "system-nodes"),
        (NODE, "GET", LEASE, "system-node-high"),
        (NODE, "GET", "/api/v1/pods", "system-nodes"),
        (ACCOUNT, "GET", "/api/v1/namespaces/default", "service-accounts"),
        (SYSTEM_ACCOUNT, "GET", "/api/v1/namespaces/default", "kube-system-service-accounts"),
        (SYSTEM_ACCOUNT, "GET", LEASE, "system-leader-election"),
        (LOOK_ALIKE, "GET", LEASE, "service-accounts"),
        (User("stranger"), "GET", "/api/v1/pods", "catch-all"),
    ],
)
def test_suggested_schemas_classify_like_kube_apiserver(who: User, method: str, path: str, expected: str) -> None:
    assert classify(ORDERED, RequestInfo.of(method, path, {}), who).name == expected


ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
ANYBODY = [{"kind": "Group", "group": {"name": "*"}}]
CREATE_IN_A = {"verbs": ["create"], "apiGroups": ["apps"], "resources": ["deployments/scale"], "namespaces": ["a"]}


@pytest.mark.parametrize(
    ("rule", "method", "path", "matches"),
    [
        ({"resourceRules": [ALL]}, "GET", "/api/v1/pods", True),
        ({"resourceRules": [ALL]}, "GET", "/version", False),
        ({"nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}, "GET", "/api/v1/pods", False),
        ({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]}, "GET", "/a/b", True),
        ({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]}, "GET", "/ab", False),
        ({"resourceRules": [CREATE_IN_A]}, "POST", "/apis/apps/v1/namespaces/a/deployments/x/scale", True),
        ({"resourceRules": [CREATE_IN_A]}, "POST", "/apis/apps/v1/namespaces/b/deployments/x/scale", False),
        ({"resourceRules": [CREATE_IN_A]}, "POST", "/apis/apps/v1/namespaces/a/deployments", False),
        ({"resourceRules": [CREATE_IN_A]}, "PUT", "/apis/apps/v1/namespaces/a/deployments/x/scale", False),
        ({"resourceRules": [ALL | {"clusterScope": False}]}, "GET", "/api/v1/nodes", False),
        ({"resourceRules": [ALL | {"namespaces": []}]}, "GET", "/api/v1/namespaces/a/pods", False),
        ({"resourceRules": [ALL | {"namespaces": []}]}, "GET", "/api/v1/pods", True),
        ({"resourceRules": [ALL | {"verbs": ["get", "*"]}]}, "POST", "/api/v1/pods", False),
    ],
)
def test_flow_schema_rules_match(rule: dict[str, object], method: str, path: str, matches: bool) -> None:
    spec = {"matchingPrecedence": 2, "rules": [{"subjects": ANYBODY, **rule}]}
    ordered = usable_schemas(
        [schema("mine", {**spec, "priorityLevelConfiguration": {"name": "catch-all"}})], ["catch-all"]
    )
    found = classify(ordered, RequestInfo.of(method, path, {}), user("u"))
    assert (found.name == "mine") is matches


def test_schemas_are_ordered_by_precedence_then_name() -> None:
    def with_precedence(name: str, precedence: int, level: str = "there") -> FlowSchema:
        return schema(name, {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}})

    found = [with_precedence("b", 5), with_precedence("a", 5), with_precedence("c", 1), with_precedence("d", 1, "gone")]
    assert [each.name for each in usable_schemas(found, ["there"])] == ["exempt", "c", "a", "b", "catch-all"]


@pytest.mark.parametrize(
    ("method", "expected"), [(None, ""), ({"type": "ByUser"}, "ada"), ({"type": "ByNamespace"}, "shop")]
)
def test_flow_distinguisher(method: object, expected: str) -> None:
    found = schema("s", {} if method is None else {"distinguisherMethod": method})
    assert distinguisher(found, RequestInfo.of("GET", "/api/v1/namespaces/shop/pods", {}), user("ada")) == expected


def test_flow_hash_matches_kube_apiserver() -> None:
    assert flow_hash("s", "ada") == 2922060966101763137
    assert flow_hash("s", "ada") != flow_hash("sad", "a")


@pytest.mark.parametrize(
    ("deck", "hand", "entropy", "cards"),
    [
        (128, 4, 0, (0, 1, 2, 3)),
        (6, 6, 0, (0, 1, 2, 3, 4, 5)),
        (6, 3, 5, (5, 0, 1)),
        (6, 3, 5 + 6 * 4, (5, 4, 0)),
        (6, 3, 2 + 6 * (2 + 5 * 1), (2, 3, 1)),
        (8, 2, 3 + 8 * 3, (3, 4)),
        (1, 1, 12345, (0,)),
    ],
)
def test_hand_is_dealt_by_remainders(deck: int, hand: int, entropy: int, cards: Sequence[int]) -> None:
    assert deal(deck, hand, entropy) == cards


@given(st.integers(1, 200), st.data())
def test_hand_has_distinct_queues(deck: int, data: st.DataObject) -> None:
    hand = data.draw(st.integers(1, min(deck, 15)))
    cards = deal(deck, hand, data.draw(st.integers(0, (1 << 64) - 1)))
    assert len(cards) == len(set(cards)) == hand
    assert all(0 <= card < deck for card in cards)


def test_every_hand_is_equally_likely() -> None:
    hands = [deal(5, 3, entropy) for entropy in range(5 * 4 * 3)]
    assert len(set(hands)) == len(hands)


LIMITED = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}


@pytest.mark.parametrize(
    ("name", "spec", "usable"),
    [
        ("a", LIMITED, True),
        ("exempt", LIMITED, False),
        ("a", {"type": "Exempt", "exempt": {}}, False),
        ("exempt", {"type": "Exempt", "exempt": {}}, True),
        ("a", {"type": "Limited"}, False),
        ("a", {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}}, False),
        ("a", {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}, True),
        ("a", {"type": "Limited", "limited": {"limitResponse": {"type": "Reject", "queuing": {}}}}, False),
        ("a", {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 4}}}}, False),
        (
            "a",
            {
                "type": "Limited",
                "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 1024, "handSize": 7}}},
            },
            False,
        ),
        (
            "a",
            {
                "type": "Limited",
                "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 1024, "handSize": 6}}},
            },
            True,
        ),
    ],
)
def test_contradictory_levels_are_not_usable(name: str, spec: object, usable: bool) -> None:
    level = msgspec.convert({"metadata": {"name": name}, "spec": spec}, PriorityLevelConfiguration)
    assert level.is_usable is usable
