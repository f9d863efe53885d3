"""The authorizer of the mode RBAC: decides from roles and bindings in memory, without blocking."""

from collections.abc import Mapping, Sequence

from apiserver_stub.authz.rbac.bindings import Bindings, Grant
from apiserver_stub.authz.rbac.rules import meant_by
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.rbac import RoleRef, RoleRule
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    NO_OPINION,
    AllowedResources,
    Authorization,
    AuthorizerAttributes,
    Decision,
    NonResourceRule,
    Rules,
    all_errors,
)

MOST_REMEMBERED = 200_000
"""The maximum number of cached views, decisions and names; then the caches are cleared."""

_NO_NAMES: Mapping[str, Authorization] = {}
# The decision on objects of all names, and those on some.
_Known = tuple[Authorization | None, Mapping[str, Authorization]]


class _View:
    """The roles of one user in one namespace or in the cluster, with cached decisions."""

    __slots__ = ("_paths", "errors", "grants", "known")

    def __init__(self, granted: Sequence[Grant | str]) -> None:
        self.grants = [each for each in granted if isinstance(each, Grant)]
        self.errors = [each for each in granted if isinstance(each, str)]
        self._paths = [each for each in self.grants if each.role.has_paths]
        self.known: dict[tuple[str, str, str, str], _Known] = {}

    def of_path(self, verb: str, path: str) -> Authorization | None:
        """Return the decision that allows a verb on a path."""
        return next((decision for role, decision in self._paths if role.allows_path(verb, path)), None)

    def find(self, verb: str, group: str, resource: str) -> _Known:
        """Return the decisions that allow a verb on a resource."""
        named: dict[str, Authorization] = {}
        resources = meant_by(resource)
        for role, decision in self.grants:
            names = role.names_by(verb, group, resources)
            if names is None:
                return decision, _NO_NAMES
            for name in names:
                named.setdefault(name, decision)
        return None, named or _NO_NAMES


_NOTHING = _View(())


class RBACAuthorizer:
    """Allows what the roles of the user and its groups allow; never denies."""

    def __init__(self, store: WatchCache) -> None:
        self._bindings = Bindings(store, self._forget)
        self._views: dict[str, dict[tuple[str, tuple[str, ...]], _View]] = {}  # by namespace, user and groups
        self._remembered = 0

    def read(self) -> None:
        """Read the roles and bindings in the watch cache and subscribe to changes."""
        self._bindings.read()

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return ALLOW with the binding, or NO_OPINION with the missing roles."""
        return self.decide(attributes)

    def decide(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return the same synchronously."""
        user, namespace = attributes.user, attributes.namespace
        everywhere, here = self._view(user, ""), _NOTHING
        found = self._decision(everywhere, attributes) if everywhere.grants else None
        if found is None and namespace:
            here = self._view(user, namespace)
            found = self._decision(here, attributes) if here.grants else None
        if found is not None:
            return found
        if not (everywhere.errors or here.errors):
            return NO_OPINION
        return Authorization(Decision.NO_OPINION, f"RBAC: {all_errors([*everywhere.errors, *here.errors])}")

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return all permissions in a namespace."""
        rules = self.rules_of(user, namespace)
        return Rules(
            tuple(
                AllowedResources(rule.verbs, rule.api_groups, rule.resources, rule.resource_names)
                for rule in rules
                if rule.resources
            ),
            tuple(NonResourceRule(rule.verbs, rule.non_resource_urls) for rule in rules if rule.non_resource_urls),
            error=all_errors(self.errors_of(user, namespace)),
        )

    def rules_of(self, user: User, namespace: str) -> list[RoleRule]:
        """Return the rules of all roles that a user has in a namespace, and in the cluster."""
        return [rule for view in self._both(user, namespace) for role, _ in view.grants for rule in role.rules]

    def errors_of(self, user: User, namespace: str) -> Sequence[str]:
        """Return the errors of the bindings of a user."""
        return [error for view in self._both(user, namespace) for error in view.errors]

    def role_rules(self, reference: RoleRef, namespace: str) -> Sequence[RoleRule] | None:
        """Return the rules of the role that a binding in a namespace refers to; None if it does not exist."""
        role = self._bindings.role(reference, namespace)
        return None if role is None else role.rules

    def _decision(self, view: _View, attributes: AuthorizerAttributes) -> Authorization | None:
        verb, group, resource = attributes.verb, attributes.group, attributes.resource
        if not resource:
            return view.of_path(verb, attributes.path)
        subresource = attributes.subresource
        known = view.known.get((verb, group, resource, subresource))
        if known is None:
            known = view.find(verb, group, f"{resource}/{subresource}" if subresource else resource)
            view.known[verb, group, resource, subresource] = known
            self._count(1 + len(known[1]))
        decision, named = known
        return decision or named.get(attributes.name)

    def _view(self, user: User, namespace: str) -> _View:
        """Return the roles of a user in a namespace (empty: in the cluster)."""
        views = self._views.get(namespace)
        if views is None:
            if not self._bindings.is_bound(namespace):
                return _NOTHING
            views = self._views[namespace] = {}
        who = user.name, user.groups
        view = views.get(who)
        if view is None:
            granted = list(self._bindings.granted(user, namespace))
            view = views[who] = _View(granted) if granted else _NOTHING
            self._count(1)
        return view

    def _both(self, user: User, namespace: str) -> list[_View]:
        return [self._view(user, each) for each in dict.fromkeys(("", namespace))]

    def _count(self, more: int) -> None:
        self._remembered += more
        if self._remembered > MOST_REMEMBERED:
            self._forget(None)

    def _forget(self, namespace: str | None) -> None:
        """Drop cached decisions of a namespace (empty: of the cluster), or all."""
        if namespace is None:
            self._views.clear()
            self._remembered = 0
        else:
            self._views.pop(namespace, None)
