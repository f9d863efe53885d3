"""The authorizer of the mode ABAC: decides by a file of policies, one in JSON a line."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.model import Model
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    ALLOWED,
    AllowedResources,
    Authorization,
    AuthorizerAttributes,
    Decision,
    NonResourceRule,
    Rules,
)

_GROUP = "abac.authorization.kubernetes.io"
_ALL = "*"
_AUTHENTICATED = "system:authenticated"
_READING = ("get", "list", "watch")
_LONGEST_LINE = 64 << 10
_MOST_POLICIES = 10_000
_NO_POLICY = Authorization(Decision.NO_OPINION, "No policy matched.")


class ABACPolicy(Model):
    """The permissions of a user or a group; `*` matches all."""

    user: str = ""
    group: str = ""
    readonly: bool = False
    api_group: str = ""
    resource: str = ""
    namespace: str = ""
    non_resource_path: str = ""

    def is_for(self, user: User) -> bool:
        """Return whether the policy applies to a user: it names a user or a group, and all that it names match."""
        if not self.user and not self.group:
            return False
        return self.user in ("", user.name) and (not self.group or self.group in user.groups)

    def allows(self, attributes: AuthorizerAttributes) -> bool:
        """Return whether the policy allows a request of its user."""
        if self.readonly and attributes.verb not in _READING:
            return False
        if not attributes.resource:
            return self._allows_path(attributes.path)
        return (
            self.namespace in (_ALL, attributes.namespace)
            and self.resource in (_ALL, attributes.resource)
            and self.api_group in (_ALL, attributes.group)
        )

    def _allows_path(self, path: str) -> bool:
        wanted = self.non_resource_path
        return wanted == path or (wanted.endswith(_ALL) and path.startswith(wanted.rstrip(_ALL)))

    @property
    def verbs(self) -> tuple[str, ...]:
        """Return the verbs that the policy is about."""
        return _READING if self.readonly else (_ALL,)


class _Typed(Model):
    api_version: str = ""
    kind: str = ""


class _Document(Model):
    spec: ABACPolicy = ABACPolicy()


class ABACAuthorizer:
    """Allows what a policy allows, and never denies."""

    def __init__(self, policies: Sequence[ABACPolicy]) -> None:
        self._policies = tuple(policies)
        self._of_users: dict[str, list[ABACPolicy]] = {}
        self._of_groups: dict[str, list[ABACPolicy]] = {}  # those that name no user
        for policy in policies:
            place, name = (self._of_users, policy.user) if policy.user else (self._of_groups, policy.group)
            place.setdefault(name, []).append(policy)

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return ALLOW or NO_OPINION."""
        user = attributes.user
        found = [self._of_users.get(user.name, ()), *(self._of_groups.get(group, ()) for group in user.groups)]
        allowed = any(policy.is_for(user) and policy.allows(attributes) for policies in found for policy in policies)
        return ALLOWED if allowed else _NO_POLICY

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return the permissions of a user in a namespace."""
        found = [each for each in self._policies if each.is_for(user) and each.namespace in (_ALL, namespace)]
        return Rules(
            tuple(AllowedResources(each.verbs, (each.api_group,), (each.resource,)) for each in found if each.resource),
            tuple(NonResourceRule(each.verbs, (each.non_resource_path,)) for each in found if each.non_resource_path),
        )


def read_policies(path: Path) -> tuple[ABACPolicy, ...]:
    """Return the policies of a file, without empty lines and comments (`#`). Raises `ValueError` naming the line."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from None
    policies = tuple(islice(_policies(path, lines), _MOST_POLICIES + 1))
    if len(policies) > _MOST_POLICIES:
        raise ValueError(f"{path} has more than {_MOST_POLICIES} policies")
    return policies


def _policies(path: Path, lines: Sequence[bytes]) -> Iterator[ABACPolicy]:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"{path}: line {number} has more than {_LONGEST_LINE >> 10} KiB")
        try:
            yield _policy(msgspec.json.decode(text))
        except (msgspec.DecodeError, ValueError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from None


def _policy(tree: Any) -> ABACPolicy:
    """Return the policy in a document of version v1beta1, or v0, which may omit the version. Raises `ValueError`."""
    typed = msgspec.convert(tree, _Typed)
    if not typed.api_version or not typed.kind or typed.api_version == f"{_GROUP}/v0":
        return _of_v0(msgspec.convert(tree, ABACPolicy))
    if (typed.api_version, typed.kind) != (f"{_GROUP}/v1beta1", "Policy"):
        raise ValueError(f"expected a Policy of {_GROUP}/v1beta1, got a {typed.kind} of {typed.api_version}")
    policy = msgspec.convert(tree, _Document).spec
    return replace(policy, user="", group=_AUTHENTICATED) if _ALL in (policy.user, policy.group) else policy


def _of_v0(policy: ABACPolicy) -> ABACPolicy:
    """Convert a v0 policy, where omitted fields match all."""
    anybody = _ALL in (policy.user, policy.group)
    anywhere = not policy.namespace and not policy.resource
    return replace(
        policy,
        user="" if anybody else policy.user,
        group=_AUTHENTICATED if anybody or not (policy.user or policy.group) else policy.group,
        namespace=policy.namespace or _ALL,
        resource=policy.resource or _ALL,
        api_group=_ALL,
        non_resource_path=_ALL if anywhere else "",
    )
