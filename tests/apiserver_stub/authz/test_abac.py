"""ABAC policies: parsing and decisions."""

from pathlib import Path

import pytest

from apiserver_stub.authz.abac import ABACAuthorizer, ABACPolicy, read_policies
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    AllowedResources,
    AuthorizerAttributes,
    Decision,
    NonResourceRule,
    Rules,
)

ALICE = User("alice", groups=("system:authenticated",))
BOB = User("bob", groups=("ops", "system:authenticated"))
ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))
V1 = '{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":%s}'


def authorizer(tmp_path: Path, *lines: str) -> ABACAuthorizer:
    file = tmp_path / "policy.jsonl"
    file.write_text("\n".join(lines))
    return ABACAuthorizer(read_policies(file))


def attributes_of(user: User, verb: str, what: str, namespace: str = "ns") -> AuthorizerAttributes:
    """Attributes of a request for `group/resource`, or for a path."""
    if what.startswith("/"):
        return AuthorizerAttributes(user, verb, what)
    group, _, resource = what.rpartition("/")
    return AuthorizerAttributes(user, verb, "", group, "v1", resource, "", namespace)


# As recorded from kube-apiserver 1.36.
@pytest.mark.parametrize(
    ("line", "user", "verb", "what", "allowed"),
    [
        (V1 % '{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}', ALICE, "delete", "apps/x", True),
        (V1 % '{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}', BOB, "delete", "apps/x", False),
        (V1 % '{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}', ALICE, "get", "/version", False),
        (V1 % '{"user":"alice","namespace":"ns","resource":"pods","apiGroup":""}', ALICE, "get", "pods", True),
        (V1 % '{"user":"alice","namespace":"ns","resource":"pods"}', ALICE, "get", "apps/pods", False),
        (V1 % '{"user":"alice","namespace":"no","resource":"pods"}', ALICE, "get", "pods", False),
        (V1 % '{"user":"alice","namespace":"*","resource":"pods","readonly":true}', ALICE, "watch", "pods", True),
        (V1 % '{"user":"alice","namespace":"*","resource":"pods","readonly":true}', ALICE, "create", "pods", False),
        (V1 % '{"group":"ops","namespace":"*","resource":"pods"}', BOB, "create", "pods", True),
        (V1 % '{"group":"ops","namespace":"*","resource":"pods"}', ALICE, "create", "pods", False),
        (V1 % '{"user":"alice","group":"ops","namespace":"*","resource":"pods"}', ALICE, "get", "pods", False),
        (V1 % '{"user":"*","namespace":"*","resource":"pods"}', ALICE, "get", "pods", True),
        (V1 % '{"user":"*","namespace":"*","resource":"pods"}', ANONYMOUS, "get", "pods", False),
        (V1 % '{"group":"*","namespace":"*","resource":"pods"}', BOB, "get", "pods", True),
        (V1 % '{"namespace":"*","resource":"*","apiGroup":"*"}', ALICE, "get", "pods", False),
        (V1 % '{"user":"alice","nonResourcePath":"*"}', ALICE, "get", "/any/path", True),
        (V1 % '{"user":"alice","nonResourcePath":"/api*"}', ALICE, "get", "/apis/x", True),
        (V1 % '{"user":"alice","nonResourcePath":"/api/*"}', ALICE, "get", "/apis/x", False),
        (V1 % '{"user":"alice","nonResourcePath":"/api"}', ALICE, "get", "/api/x", False),
        (V1 % '{"user":"alice","nonResourcePath":"*","readonly":true}', ALICE, "post", "/api", False),
        (V1 % '{"user":"alice","namespace":"*","resource":"pods","future":1}', ALICE, "get", "pods", True),
        ('{"user":"alice"}', ALICE, "delete", "apps/x", True),
        ('{"user":"alice"}', ALICE, "get", "/version", True),
        ('{"user":"alice","resource":"pods"}', ALICE, "get", "/version", False),
        ('{"user":"alice","resource":"pods"}', ALICE, "get", "apps/pods", True),
        ('{"readonly":true,"namespace":"ns"}', BOB, "list", "apps/x", True),
        ('{"readonly":true,"namespace":"ns"}', ANONYMOUS, "list", "apps/x", False),
        ('{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy","user":"bob"}', BOB, "get", "pods", True),
    ],
)
async def test_policy_allows_matching_requests(
    tmp_path: Path, line: str, user: User, verb: str, what: str, allowed: bool
) -> None:
    authorization = await authorizer(tmp_path, line).authorize(attributes_of(user, verb, what))
    assert authorization.decision is (Decision.ALLOW if allowed else Decision.NO_OPINION)
    assert authorization.reason == ("" if allowed else "No policy matched.")


async def test_rules_of_user(tmp_path: Path) -> None:
    found = authorizer(
        tmp_path,
        V1 % '{"user":"alice","namespace":"ns","resource":"pods","readonly":true}',
        V1 % '{"user":"alice","namespace":"other","resource":"secrets"}',
        V1 % '{"group":"ops","namespace":"*","resource":"nodes"}',
        V1 % '{"user":"alice","namespace":"*","nonResourcePath":"/logs"}',
    )
    read = ("get", "list", "watch")
    assert await found.rules_for(ALICE, "ns") == Rules(
        (AllowedResources(read, ("",), ("pods",)),), (NonResourceRule(("*",), ("/logs",)),)
    )
    assert await found.rules_for(BOB, "ns") == Rules((AllowedResources(("*",), ("",), ("nodes",)),))


def test_too_many_policies_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than 10000 policies"):
        authorizer(tmp_path, *['{"user":"bob"}'] * 10_001)


def test_comments_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "policy.jsonl"
    file.write_text('# who may read\n\n   \n  # more\n{"user":"bob"}\n')
    assert read_policies(file) == (
        ABACPolicy(user="bob", api_group="*", resource="*", namespace="*", non_resource_path="*"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '"x"',
        '{"user":1}',
        V1 % '{"readonly":"yes"}',
        '{"apiVersion":"v1","kind":"Pod"}',
        '{"user":"%s"}' % ("x" * 70_000),
    ],
    ids=lambda line: line[:40],
)
def test_malformed_line_is_reported(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match=r"policy\.jsonl: line 3"):
        authorizer(tmp_path, "# first", "", line)
    with pytest.raises(ValueError, match="missing can't be read"):
        read_policies(tmp_path / "missing")
