"""Rules of roles: what they allow, which rules they cover, and how missing rules are reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.authz.rbac.rules import RoleRules, compact, count_parts, parts
from controller_manager.common.api.rbac import RoleRule


def allow(verbs: str, groups: str, resources: str, names: str = "") -> RoleRule:
    """A rule from words; `core` is the group without a name."""
    return RoleRule(
        verbs=tuple(verbs.split()),
        api_groups=tuple("" if group == "core" else group for group in groups.split()),
        resources=tuple(resources.split()),
        resource_names=tuple(names.split()),
    )


def path_rule(verbs: str, urls: str) -> RoleRule:
    return RoleRule(verbs=tuple(verbs.split()), non_resource_urls=tuple(urls.split()))


@pytest.mark.parametrize(
    ("rule", "verb", "group", "resource", "name", "allowed"),
    [
        (allow("get list", "core", "pods"), "get", "", "pods", "a", True),
        (allow("get list", "core", "pods"), "watch", "", "pods", "a", False),
        (allow("get", "core", "pods"), "get", "apps", "pods", "a", False),
        (allow("get", "core", "pods"), "get", "", "pods/log", "a", False),
        (allow("get", "core", "pods/log"), "get", "", "pods/log", "a", True),
        (allow("get", "core", "pods/log"), "get", "", "pods", "a", False),
        (allow("get", "core", "*/status"), "get", "", "pods/status", "a", True),
        (allow("get", "core", "*/status"), "get", "", "pods", "a", False),
        (allow("get", "core", "*/status"), "get", "", "status", "a", False),
        (allow("get", "core", "*"), "get", "", "pods/status", "a", True),
        (allow("get", "*", "pods"), "get", "x.io", "pods", "a", True),
        (allow("*", "*", "*"), "impersonate", "x.io", "anything/below", "", True),
        (allow("get", "core", "pods", "a b"), "get", "", "pods", "b", True),
        (allow("get", "core", "pods", "a b"), "get", "", "pods", "c", False),
        (allow("list", "core", "pods", "a b"), "list", "", "pods", "", False),
    ],
)
def test_rule_allows_verb_group_resource_and_name(
    rule: RoleRule, verb: str, group: str, resource: str, name: str, allowed: bool
) -> None:
    names = RoleRules([rule]).names(verb, group, resource)
    assert (names is None or name in names) == allowed


@pytest.mark.parametrize(
    ("pattern", "path", "allowed"),
    [
        ("*", "/", True),
        ("*", "/api", True),
        ("/*", "/", True),
        ("/*", "/foo", True),
        ("/api", "/api", True),
        ("/apis", "/api", False),
        ("/api/v1", "/api", False),
        ("/api/*", "/api/v1", True),
        ("/api/*", "/api", False),
        ("/api/*/*", "/api/v1", False),
        ("/healthz**", "/healthz/x", True),
    ],
)
def test_rule_allows_paths(pattern: str, path: str, allowed: bool) -> None:
    role = RoleRules([path_rule("get", pattern)])
    assert role.has_paths
    assert role.allows_path("get", path) == allowed
    assert not role.allows_path("post", path)


@pytest.mark.parametrize(
    ("held", "wanted", "lacking"),
    [
        ([allow("get", "v1", "builds")], [allow("get", "v1", "builds")], []),
        ([allow("get", "v1", "*/scale")], [allow("get", "v1", "foo/scale")], []),
        ([allow("get", "v1", "foo/scale")], [allow("get", "v1", "*/scale")], [allow("get", "v1", "*/scale")]),
        (
            [
                allow("delete", "v1", "deployments"),
                allow("delete", "v1", "builds"),
                allow("update", "v1", "builds deployments"),
            ],
            [allow("update delete", "v1", "builds deployments")],
            [],
        ),
        (
            [allow("get", "a b", "x")],
            [allow("get list", "a b", "x y")],
            [
                allow("list", "a", "x"),
                allow("get list", "a", "y"),
                allow("list", "b", "x"),
                allow("get list", "b", "y"),
            ],
        ),
        ([allow("get", "core", "pods", "a")], [allow("get", "core", "pods")], [allow("get", "core", "pods")]),
        ([allow("get", "core", "pods")], [allow("get", "core", "pods", "a b")], []),
        (
            [allow("get", "core", "pods", "a")],
            [allow("get", "core", "pods", "a b")],
            [allow("get", "core", "pods", "b")],
        ),
        ([allow("*", "*", "*")], [allow("get", "core", "pods")], []),
        ([allow("get", "core", "pods")], [allow("*", "core", "pods")], [allow("*", "core", "pods")]),
        ([allow("get", "core", "pods")], [allow("get", "core", "*")], [allow("get", "core", "*")]),
        ([path_rule("*", "*")], [path_rule("get", "/apis /apis/v1 /")], []),
        ([path_rule("*", "/apis/*")], [path_rule("get", "/apis /apis/v1")], [path_rule("get", "/apis")]),
        ([allow("*", "*", "*")], [path_rule("get", "/apis")], [path_rule("get", "/apis")]),
        ([path_rule("*", "*")], [allow("get", "core", "pods")], [allow("get", "core", "pods")]),
    ],
)
def test_missing_rules_are_compacted(held: list[RoleRule], wanted: list[RoleRule], lacking: list[RoleRule]) -> None:
    role = RoleRules(held)
    found = compact(part for part in parts(wanted) if not role.covers(part))
    assert sorted(map(repr, found)) == sorted(map(repr, lacking))


_words = st.lists(st.sampled_from(["a", "b", "*", "c/x", "*/x"]), min_size=1, max_size=3).map(tuple)
_rules = st.lists(
    st.builds(
        RoleRule,
        verbs=_words,
        api_groups=_words,
        resources=_words,
        resource_names=st.lists(st.sampled_from("mn"), max_size=2).map(tuple),
    )
    | st.builds(
        RoleRule, verbs=_words, non_resource_urls=st.lists(st.sampled_from(["/", "/a", "/a/*", "*"])).map(tuple)
    ),
    max_size=3,
)


@given(_rules, _rules)
def test_role_with_all_rules_covers_every_part(held: list[RoleRule], wanted: list[RoleRule]) -> None:
    role, found = RoleRules(held), list(parts(wanted))
    assert count_parts(wanted) == len(found)
    assert all(RoleRules(wanted).covers(part) for part in found)
    for rule in wanted:
        if role.covers_all(rule):
            assert all(role.covers(part) for part in parts([rule]))
