"""Prevents users from reading objects through policies: checks the parameters of policies and bindings that are
written.

| written   | allowed for                                                                                            |
|-----------|--------------------------------------------------------------------------------------------------------|
| a policy  | users who may get all objects of its parameter kind                                                    |
| a binding | users who may get the named parameter, or list the selected ones                                       |

Unchanged references are not checked again. Members of `system:masters` are exempt.
"""

from collections.abc import Mapping

import orjson

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.policies.index import ParamKind
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import CorruptRow
from controller_manager.common.api.errors import Cause, invalid
from controller_manager.common.api.platform import ADMIN_GROUP, GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving import authorization
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorizer, Decision

_GROUP = f"admissionregistration.{GROUP_DOMAIN}"
_POLICIES = tuple(f"{kind}admissionpolicies.{_GROUP}" for kind in ("mutating", "validating"))
_BINDINGS: Mapping[str, str] = {f"{kind}admissionpolicybindings.{_GROUP}": f"{kind}admissionpolicies.{_GROUP}"
                                for kind in ("mutating", "validating")}  # fmt: skip
_KIND, _REFERENCE = ("spec", "paramKind"), ("spec", "paramRef")
_EVERYTHING = ("*", "*", "*")


class ParameterPermission:
    """Plugins of policies and of bindings."""

    def __init__(self, authorizer: Authorizer, kinds: ResourceRegistry, store: WatchCache) -> None:
        self._authorizer = authorizer
        self._kinds = kinds
        self._store = store

    async def check_policy(self, attributes: Attributes) -> None:
        """Raises `Invalid` for a policy whose parameter kind its author may not read."""
        tree = get_in(attributes.tree, _KIND)
        if _is_exempt(attributes) or tree is None or tree == get_in(attributes.old_object, _KIND):
            return
        kind, user = ParamKind(tree["apiVersion"], tree["kind"]), attributes.user
        if not await self._may(user, "get", self._resource(kind), "*", "*"):
            which = f"(kind={kind.kind}, apiVersion={kind.api_version})"
            why = f'user {_shown(user)} must have "get" permission on all objects of the referenced paramKind {which}'
            raise _forbidden(attributes, "spec.paramKind", why)

    async def check_binding(self, attributes: Attributes) -> None:
        """Raises `Invalid` for a binding with parameters that its author may not read."""
        spec, old = attributes.tree["spec"], get_in(attributes.old_object, ("spec",)) or {}
        reference, policy = spec.get("paramRef"), spec["policyName"]
        if _is_exempt(attributes) or reference is None:
            return
        if reference == old.get("paramRef") and policy == old.get("policyName"):
            return
        name, user = reference.get("name") or "", attributes.user
        verb = "get" if name else "list"
        resource, problem = self._referred(_BINDINGS[attributes.kind.storage], policy)
        if await self._may(user, verb, resource, reference.get("namespace") or "", name):
            return
        lacks = f'user {_shown(user)} does not have "{verb}" permission'
        why = f"{lacks} on the object referenced by paramRef"
        if problem:
            everything = "for all groups, versions and resources"
            why = f"{problem} to determine minimum required permissions and {lacks} {everything}"
        raise _forbidden(attributes, "spec.paramRef", why)

    def _referred(self, resource: str, policy: str) -> tuple[tuple[str, str, str], str]:
        """Return group, version and resource of the parameters of a policy, or the reason why they are unknown."""
        row = self._store.get(resource, policy)
        if row is None or isinstance(row, CorruptRow):
            return _EVERYTHING, f"unable to get policy {policy}"
        tree: Tree | None = get_in(orjson.loads(row.data), _KIND)
        if tree is None:
            return _EVERYTHING, ""
        kind = ParamKind(tree["apiVersion"], tree["kind"])
        found = self._resource(kind)
        return found, f"unable to resolve paramKind {kind.api_version}, Kind={kind.kind}" if found[2] == "*" else ""

    def _resource(self, kind: ParamKind) -> tuple[str, str, str]:
        """Return group, version and resource of a kind; the resource is `*` if the kind is not served."""
        group, _, version = kind.api_version.rpartition("/")
        infos = (info for info in self._kinds.all() if (info.api_version, info.kind) == kind)
        return group, version, next((info.plural for info in infos), "*")

    async def _may(self, user: User, verb: str, resource: tuple[str, str, str], namespace: str, name: str) -> bool:
        asked = authorization.AuthorizerAttributes(user, verb, "", *resource, "", namespace, name)
        return (await self._authorizer.authorize(asked)).decision is Decision.ALLOW


def parameter_permission(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin of policies and their bindings."""
    check = ParameterPermission(parts.authorizer, parts.kinds, parts.store)
    return AdmissionPlugin(
        "",
        validating=(
            Rule(check.check_policy, ("create", "update"), _POLICIES),
            Rule(check.check_binding, ("create", "update"), tuple(_BINDINGS)),
        ),
    )


def _is_exempt(attributes: Attributes) -> bool:
    return ADMIN_GROUP in attributes.user.groups


def _shown(user: User) -> str:
    """Return a user as Go prints one."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted(user.extra.items()))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"


def _forbidden(attributes: Attributes, field: str, why: str) -> Exception:
    cause = Cause(reason="FieldValueForbidden", message=f"Forbidden: {why}", field=field)
    kind = attributes.kind
    return invalid(kind.group, kind.kind, attributes.tree["metadata"]["name"], [cause])
