"""Modes of impersonation: the authorization checks of each kind of impersonation.

A mode applies to one type of user (KEP-5284, constrained impersonation). It checks the verb `impersonate-on:MODE:VERB`
on the requested resource, and `impersonate:MODE` on each impersonated attribute. The last mode is the legacy one: it
checks `impersonate` only.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from apiserver_stub.encode.json import encode
from apiserver_stub.kinds.values import names
from controller_manager.common.api.platform import ADMIN_GROUP, GROUP_DOMAIN
from controller_manager.common.serving.authentication import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User
from controller_manager.common.serving.authorization import AuthorizerAttributes, refusal

_GROUP = f"authentication.{GROUP_DOMAIN}"
_ACCOUNT, _ACCOUNTS, _NODE, _NODES = "system:serviceaccount:", "system:serviceaccounts", "system:node:", "system:nodes"
_OWN_NODE = "authentication.kubernetes.io/node-name"
_OWN_KEYS = "authentication.kubernetes.io/associated-node-keys"
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_OWN = "associated-node"
_MANY = 4  # groups or values from which on a single check for all is tried first


class ImpersonationCheck(NamedTuple):
    """A required permission: all of `each`, or `all_at_once` if set."""

    each: tuple[AuthorizerAttributes, ...]
    all_at_once: AuthorizerAttributes | None = None


class Mode(msgspec.Struct, frozen=True):
    """A mode of impersonation: `takes` returns whether it applies to a requestor and a user. A mode that is not
    `constrained` checks only `impersonate`.
    """

    name: str
    takes: Callable[[User, User], bool]
    constrained: bool = True

    def steps(self, attributes: AuthorizerAttributes, wanted: User) -> Iterator[ImpersonationCheck]:
        """Yield the required checks in order. Raises `Forbidden` for users that cannot be impersonated."""
        if self.constrained:
            verb = f"impersonate-on:{self.name}:{attributes.verb}"
            yield ImpersonationCheck((self._asked(replace(attributes, verb=verb)),))
        yield ImpersonationCheck((self._asked(self._name(attributes.user, wanted.name)),))
        if wanted.uid:
            yield ImpersonationCheck((self._about(attributes.user, "uids", wanted.uid, group=_GROUP),))
        if wanted.groups:
            yield self._groups(attributes.user, wanted.groups)
        if wanted.extra:
            yield self._extra(attributes.user, wanted.extra)

    @property
    def constraint(self) -> str:
        """The checked verb, as recorded by the audit."""
        return self._verb if self.constrained else ""

    @property
    def _verb(self) -> str:
        return f"impersonate:{self.name}" if self.constrained else "impersonate"

    def _asked(self, attributes: AuthorizerAttributes) -> AuthorizerAttributes:
        """Return the attributes of a check. For the node of the requestor, permission for all nodes and pods is
        required.
        """
        if self.name != _OWN:
            return attributes
        user = attributes.user
        reduced = replace(user, extra={_OWN_KEYS: tuple(sorted(user.extra))})
        name = "*" if attributes.verb == self._verb else attributes.name
        return replace(attributes, user=reduced, name=name)

    def _about(
        self, user: User, resource: str, name: str, subresource: str = "", namespace: str = "", group: str | None = None
    ) -> AuthorizerAttributes:
        if group is None:
            group = _GROUP if self.constrained else ""
        return AuthorizerAttributes(user, self._verb, "", group, "v1", resource, subresource, namespace, name)

    def _name(self, requestor: User, name: str) -> AuthorizerAttributes:
        account, node = account_of(name), _node_of(name)
        if account is not None:
            return self._about(requestor, "serviceaccounts", account[1], namespace=account[0])
        if node and self.constrained:
            return self._about(requestor, "nodes", node)
        return self._about(requestor, "users", name)

    def _groups(self, requestor: User, groups: tuple[str, ...]) -> ImpersonationCheck:
        each = tuple(self._about(requestor, "groups", group) for group in groups)
        if not self.constrained:
            return ImpersonationCheck(each)
        if "" in groups:
            raise refusal(self._about(requestor, "groups", ""), "a group without a name cannot be impersonated")
        if ADMIN_GROUP in groups:
            why = f"the group {ADMIN_GROUP} cannot be impersonated"
            raise refusal(self._about(requestor, "groups", ADMIN_GROUP), why)
        return ImpersonationCheck(each, self._about(requestor, "groups", "*") if len(groups) >= _MANY else None)

    def _extra(self, requestor: User, extra: Mapping[str, tuple[str, ...]]) -> ImpersonationCheck:
        each = tuple(
            self._about(requestor, "userextras", value, key, group=_GROUP)
            for key, values in extra.items()
            for value in values
        )
        if not self.constrained:
            return ImpersonationCheck(each)
        if why := next((why for key, values in extra.items() if (why := _wrong(key, values))), ""):
            raise refusal(self._about(requestor, "userextras", ""), why)
        many = len(each) >= _MANY
        return ImpersonationCheck(each, self._about(requestor, "userextras", "*", "*") if many else None)

    def user(self, wanted: User) -> User:
        """Return the impersonated user, with the groups implied by the name if no groups are given."""
        groups, account = wanted.groups, account_of(wanted.name)
        if account is not None and not groups:
            groups = (_ACCOUNTS, f"{_ACCOUNTS}:{account[0]}")
        elif self.constrained and _node_of(wanted.name):
            groups = (_NODES,)
        implied = UNAUTHENTICATED if wanted.name == ANONYMOUS else AUTHENTICATED
        if implied not in groups and UNAUTHENTICATED not in groups:
            groups = (*groups, implied)
        return replace(wanted, groups=groups)


def _has_only_a_name(wanted: User) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _is_own_node(wanted: User, requestor: User) -> bool:
    node = _node_of(wanted.name)
    if not node or not _has_only_a_name(wanted) or account_of(requestor.name) is None:
        return False
    return requestor.extra.get(_OWN_NODE) == (node,)


def _is_node(wanted: User, _requestor: User) -> bool:
    return _has_only_a_name(wanted) and bool(_node_of(wanted.name))


def _is_account(wanted: User, _requestor: User) -> bool:
    return _has_only_a_name(wanted) and account_of(wanted.name) is not None


def _is_neither(wanted: User, _requestor: User) -> bool:
    return not _node_of(wanted.name) and account_of(wanted.name) is None


LEGACY = Mode("legacy", lambda _wanted, _requestor: True, constrained=False)
MODES = (
    Mode(_OWN, _is_own_node),
    Mode("arbitrary-node", _is_node),
    Mode("serviceaccount", _is_account),
    Mode("user-info", _is_neither),
    LEGACY,
)
"""All modes, in the order in which they are tried."""


def account_of(name: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account that a user is; None for other users."""
    if not name.startswith(_ACCOUNT):
        return None
    namespace, colon, account = name.removeprefix(_ACCOUNT).partition(":")
    return (namespace, account) if colon and not names.label(namespace) and not names.subdomain(account) else None


def _node_of(name: str) -> str:
    """Return the name of the node that a user is; empty for other users."""
    node = name.removeprefix(_NODE) if name.startswith(_NODE) else ""
    return "" if not node or names.subdomain(node) else node


def _wrong(key: str, values: tuple[str, ...]) -> str:
    """Return why an extra key with these values is not allowed in constrained modes; empty if it is allowed."""
    if not key:
        return "an extra without a key cannot be impersonated"
    domain, slash, path = key.partition("/")
    if not slash or names.subdomain(domain) or not _PATH.fullmatch(path):
        return f"the key {encode(key).decode()} of extra is not a domain-prefixed path, such as acme.io/foo"
    if key != key.lower():
        return f"the key {encode(key).decode()} of extra is not in lower case"
    return "" if values and "" not in values else "an extra without a value cannot be impersonated"
