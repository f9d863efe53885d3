"""Prevents privilege escalation: checks roles and bindings that are written (`pkg/registry/rbac`).

It runs last of the mutating plugins, so that it checks the object that would be stored. Members of `system:masters` are
exempt.

| written                  | allowed for                                                                             |
|--------------------------|-----------------------------------------------------------------------------------------|
| a role                   | users with all its permissions in its namespace, or with `escalate` on it               |
| one with an aggregation  | as above, and users with all permissions, because labels decide what it will contain    |
| a binding                | users with `bind` on its role there, or with all its permissions                        |
| only owners, finalizers  | all users who may write it: garbage collectors do not need the permissions              |
"""

from collections.abc import Sequence

import msgspec

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.plugins.owner_references import changes_only_owners
from apiserver_stub.authz.rbac import RBACAuthorizer, RoleRules
from apiserver_stub.authz.rbac.bindings import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, missing
from apiserver_stub.authz.rbac.rules import compact, count_parts, parts
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.errors import BadRequest, UnknownError, forbidden, not_found
from controller_manager.common.api.platform import ADMIN_GROUP
from controller_manager.common.api.rbac import GROUP, Role, RoleBinding, RoleRule
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log.formats import quote
from controller_manager.common.serving import authorization
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorizer, Decision, all_errors

MOST_PARTS = 20_000
"""The maximum number of rule parts checked in one write; each takes a microsecond or two."""

_EVERYTHING = (
    RoleRule(verbs=("*",), api_groups=("*",), resources=("*",)),
    RoleRule(verbs=("*",), non_resource_urls=("*",)),
)
_ROLE, _BINDING = Decoder(Role), Decoder(RoleBinding)


class EscalationCheck:
    """Plugins of roles and of bindings."""

    def __init__(self, authorizer: Authorizer, roles: RBACAuthorizer) -> None:
        self._authorizer = authorizer
        self._roles = roles

    async def check_role(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for a role with more rights than its author has."""
        kind, tree, old = attributes.kind, attributes.tree, attributes.old_object
        if _is_exempt(attributes) or await self._may(
            attributes, "escalate", kind.plural, attributes.requested_name, attributes.namespace
        ):
            return
        self._confirm(attributes, _ROLE.decode(msgspec.json.encode({"rules": tree.get("rules")})).rules)
        if (_aggregates(tree) or _aggregates(old)) and self._lacking(attributes.user, "", _EVERYTHING):
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise forbidden(kind.group, kind.plural, attributes.name, why)

    async def check_binding(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for a binding of a role with more permissions than its author has, and `NotFound` for a
        binding of a role that does not exist.
        """
        if _is_exempt(attributes):
            return
        reference = _BINDING.decode(msgspec.json.encode({"roleRef": attributes.tree.get("roleRef")})).role_ref
        resource = {"Role": "roles", "ClusterRole": "clusterroles"}.get(reference.kind)
        if resource and await self._may(attributes, "bind", resource, reference.name, attributes.namespace):
            return
        if resource and not reference.name:
            raise BadRequest("Name parameter required.")
        if reference.kind == "Role" and not attributes.namespace:
            raise BadRequest("Namespace parameter required.")
        rules = self._roles.role_rules(reference, attributes.namespace)
        if rules is None:
            if not resource:
                raise UnknownError(missing(reference))
            raise not_found(
                GROUP, attributes.kind.plural, reference.name
            )  # the written kind with the name that clients use
        self._confirm(attributes, rules)

    async def _may(self, attributes: Attributes, verb: str, resource: str, name: str, namespace: str) -> bool:
        asked = authorization.AuthorizerAttributes(attributes.user, verb, "", GROUP, "*", resource, "", namespace, name)
        return (await self._authorizer.authorize(asked)).decision is Decision.ALLOW

    def _confirm(self, attributes: Attributes, rules: Sequence[RoleRule]) -> None:
        """Raise `Forbidden` unless the author holds all of these rules."""
        kind, user = attributes.kind, attributes.user
        lacking = self._lacking(user, attributes.namespace, rules)
        if not lacking:
            return
        not_held = "\n".join(sorted({_shown(rule) for rule in compact(lacking)}))
        who = f"user {quote(user.name)} (groups={_list(user.groups)})"
        why = f"{who} is attempting to grant RBAC permissions not currently held:\n{not_held}"
        if errors := self._roles.errors_of(user, attributes.namespace):
            why += f"; resolution errors: {all_errors(errors)}"
        raise forbidden(kind.group, kind.plural, attributes.name, why)

    def _lacking(self, user: User, namespace: str, rules: Sequence[RoleRule]) -> Sequence[RoleRule]:
        """Return the rule parts that a user does not hold; if there are too many to check, all count as missing."""
        held = RoleRules(self._roles.rules_of(user, namespace))
        unclear = [rule for rule in rules if not held.covers_all(rule)]
        if count_parts(unclear) > MOST_PARTS:
            return unclear
        return [part for part in parts(unclear) if not held.covers(part)]


def _is_exempt(attributes: Attributes) -> bool:
    if ADMIN_GROUP in attributes.user.groups:
        return True
    old = attributes.old_object
    return old is not None and changes_only_owners(attributes.tree, old)


def _aggregates(tree: Tree | None) -> bool:
    return bool(get_in(tree, ("aggregationRule", "clusterRoleSelectors")))


def _shown(rule: RoleRule) -> str:
    """Return a rule in one line."""
    fields = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.non_resource_urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    return f"{{{', '.join(f'{name}:{_list(values)}' for name, values in fields if values)}}}"


def _list(values: Sequence[str]) -> str:
    return f"[{' '.join(map(quote, values))}]"


def escalation_check(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin of roles and bindings."""
    check = EscalationCheck(parts.authorizer, parts.rbac)
    return AdmissionPlugin(
        "",
        mutating=(
            Rule(check.check_role, ("create", "update"), (ROLES, CLUSTER_ROLES)),
            Rule(check.check_binding, ("create", "update"), (BINDINGS, CLUSTER_BINDINGS)),
        ),
    )
