"""Authorization of writes to ResourceClaims: the checks of the kinds themselves (`pkg/registry/resource`).

| written                                            | allowed                                                        |
|----------------------------------------------------|----------------------------------------------------------------|
| a claim or template with admin access, or a new    | in a namespace with the label of `_ADMIN` (KEP-5018)           |
| result with it in an allocation                    |                                                                |
| `status.allocation`, `status.reservedFor`          | with permission for `resourceclaims/binding` in the cluster    |
| an entry of `status.devices`, of an allocated claim | with permission for `resourceclaims/driver` of its driver:    |
|                                                    | `associated-node:` on the node of the allocation, or           |
|                                                    | `arbitrary-node:` (KEP-4817)                                   |
"""

from collections.abc import Iterator, Sequence
from typing import Any

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.strategies.device_claims import DeviceID, id_of
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import invalid
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving import authorization
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorizer, Decision, refusal

_GROUP = f"resource.{GROUP_DOMAIN}"
_CLAIMS, _TEMPLATES = f"resourceclaims.{_GROUP}", f"resourceclaimtemplates.{_GROUP}"
_ADMIN = f"resource.{PLATFORM_DOMAIN}/admin-access"
_NODE = f"authentication.{PLATFORM_DOMAIN}/node-name"
_REQUESTS = ("devices", "requests")
_RESULTS = ("status", "allocation", "devices", "results")
_BOUND = (("status", "allocation"), ("status", "reservedFor"))


class DeviceClaims:
    """Plugins of claims to devices and of their templates."""

    def __init__(self, store: WatchCache, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    async def check_spec(self, attributes: Attributes) -> None:
        """Raises `Invalid` for admin access in a namespace without permission. The spec is immutable, so only new
        objects matter.
        """
        path = ("spec",) if attributes.kind.storage == _CLAIMS else ("spec", "spec")
        for index, request in enumerate(get_in(attributes.object, (*path, *_REQUESTS)) or ()):
            if (request.get("exactly") or {}).get("adminAccess"):
                errors = ErrorList()
                self._check_admin(attributes, (place("spec.devices.requests"), index), errors)
                _raise(attributes, errors)
                return

    async def check_status(self, attributes: Attributes) -> None:
        """Raises `Invalid` for changes of the status that the caller is not allowed to make."""
        new, old, errors = attributes.tree, attributes.old_object or {}, ErrorList()
        granted = next(_with_admin_access(new), None)
        if granted is not None and next(_with_admin_access(old), None) is None:
            self._check_admin(attributes, (place("status.allocation.devices.results"), granted), errors)
        if any((get_in(new, path) or None) != (get_in(old, path) or None) for path in _BOUND):
            await self._check_binding(attributes, errors)
        if get_in(new, ("status", "allocation")) is not None:
            for driver in sorted(changed_drivers(new, old)):
                await self._check_driver(attributes, driver, errors)
        _raise(attributes, errors)

    def _check_admin(self, attributes: Attributes, at: FieldPath, errors: ErrorList) -> None:
        namespace = self._store.get("namespaces", attributes.namespace)
        if namespace is None or namespace.labels.get(_ADMIN) != "true":
            why = f"admin access to devices requires the `{_ADMIN}: true` label on the containing namespace"
            errors.forbidden((at, "adminAccess"), why)

    async def _check_binding(self, attributes: Attributes, errors: ErrorList) -> None:
        verb = attributes.verb
        refused = await self._refused(attributes, (verb,), "binding", "", "")
        if refused:
            what = f'status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="{verb}"'
            errors.forbidden(place("status.allocation"), f"changing {what} permission: {refused}")

    async def _check_driver(self, attributes: Attributes, driver: str, errors: ErrorList) -> None:
        node, verb = allocated_node(attributes.tree), attributes.verb
        verbs = [f"arbitrary-node:{verb}"]
        if node and _runs_on(attributes.user) == node:
            verbs.insert(0, f"associated-node:{verb}")
        refused = await self._refused(attributes, verbs, "driver", attributes.namespace, driver)
        if refused:
            what = f'status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]"'
            errors.forbidden(place("status.devices"), f"changing {what} permission: {refused}")

    async def _refused(
        self, attributes: Attributes, verbs: Sequence[str], subresource: str, namespace: str, name: str
    ) -> str:
        """Return the reason if none of the verbs is allowed, else an empty string."""
        refused = ""
        for verb in verbs:
            version, target = attributes.kind.version, (subresource, namespace, name)
            asked = authorization.AuthorizerAttributes(
                attributes.user, verb, "", _GROUP, version, "resourceclaims", *target
            )
            verdict = await self._authorizer.authorize(asked)
            if verdict.decision is Decision.ALLOW:
                return ""
            reason = ": ".join(filter(None, (verdict.error, verdict.reason)))
            refused = refused or refusal(asked, reason).message
        return refused


def _raise(attributes: Attributes, errors: ErrorList) -> None:
    if errors.causes:
        kind = attributes.kind
        raise invalid(kind.group, kind.kind, attributes.name, errors.causes)


def _with_admin_access(claim: Tree) -> Iterator[int]:
    """Yield the indexes of allocation results with admin access."""
    for index, result in enumerate(get_in(claim, _RESULTS) or ()):
        if result.get("adminAccess"):
            yield index


def changed_drivers(new: Tree, old: Tree) -> set[str]:
    """Return the drivers whose devices changed in the status."""
    after, before = _devices(new), _devices(old)
    return {key[0] for key in after.keys() | before.keys() if after.get(key) != before.get(key)}


def _devices(claim: Tree) -> dict[DeviceID, Any]:
    return {id_of(device): device for device in get_in(claim, ("status", "devices")) or ()}


def allocated_node(claim: Tree) -> str:
    """Return the one node that the devices of a claim are for; empty if there are several, or any."""
    terms: list[Tree] = get_in(claim, ("status", "allocation", "nodeSelector", "nodeSelectorTerms")) or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    (match,) = terms[0]["matchFields"]
    values: list[str] = match.get("values") or []
    named = (match.get("key"), match.get("operator"), len(values)) == ("metadata.name", "In", 1)
    return values[0] if named else ""


def _runs_on(user: User) -> str:
    """Return the node that the token of a service account is bound to."""
    nodes = user.extra.get(_NODE, ())
    is_account = user.name.startswith("system:serviceaccount:") and user.name.count(":") == 3
    return nodes[0] if is_account and len(nodes) == 1 and not names.subdomain(nodes[0]) else ""


def device_claims(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin of ResourceClaims."""
    check = DeviceClaims(parts.store, parts.authorizer)
    return AdmissionPlugin(
        "",
        validating=(
            Rule(check.check_spec, ("create",), (_CLAIMS, _TEMPLATES)),
            Rule(check.check_status, ("update",), (_CLAIMS,), ("status",)),
        ),
    )
