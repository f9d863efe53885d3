"""The plugin OwnerReferencesPermissionEnforcement: checks permissions for changes of owner references.

| change                                        | required permission                                                |
|-----------------------------------------------|--------------------------------------------------------------------|
| owner references of an existing object        | delete the object                                                  |
| a reference gets `blockOwnerDeletion`         | update the finalizers of the owner, or of all objects              |

The creator of an object may set any owners. Updates of the pod status cannot change references and are not checked.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log.formats import quote
from controller_manager.common.serving import authorization
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorization, Authorizer, Decision

_OWNERS = ("metadata", "ownerReferences")
_FINALIZERS = "finalizers"
_FOR_COLLECTION = ("ownerReferences", "finalizers", "selfLink", "managedFields")


def changes_only_owners(new: Tree, old: Tree) -> bool:
    """Return whether an update changes no more than garbage collection does: owners and finalizers."""
    return _without(new) == _without(old)


def _without(tree: Tree) -> Tree:
    metadata = {name: value for name, value in tree["metadata"].items() if name not in _FOR_COLLECTION}
    return {**tree, "metadata": metadata}


def owner_references_permission_enforcement(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin OwnerReferencesPermissionEnforcement."""
    check = OwnerReferences(parts.authorizer, OwnerKinds(parts.kinds)).check
    rule = Rule(check, ("create", "update"), (ALL,), (ALL,))
    return AdmissionPlugin("OwnerReferencesPermissionEnforcement", validating=(rule,))


class OwnerResource(NamedTuple):
    """The resource that a reference leads to."""

    group: str
    version: str
    plural: str
    namespaced: bool


class OwnerKinds:
    """Resources by kind, as clients know them from discovery, including lower-case and list kinds."""

    def __init__(self, kinds: ResourceRegistry) -> None:
        self._kinds = kinds
        self._known: tuple[int, dict[tuple[str, str], list[OwnerResource]]] = (-1, {})

    def of(self, api_version: str, kind: str) -> Sequence[OwnerResource]:
        """Return the resources of a kind; empty if it is not served."""
        if self._known[0] != self._kinds.generation:
            found: dict[tuple[str, str], list[OwnerResource]] = {}
            for version, name, resource in self._names():
                found.setdefault((version, name), []).append(resource)
            self._known = self._kinds.generation, found
        return self._known[1].get((api_version, kind), ())

    def _names(self) -> Iterator[tuple[str, str, OwnerResource]]:
        for each in self._kinds.all():
            resource = OwnerResource(each.group, each.version, each.plural, each.namespaced)
            yield each.api_version, each.kind, resource
            yield each.api_version, each.kind.lower(), resource
            lists = f"{each.kind}List"
            yield each.api_version, lists, resource._replace(plural=f"{lists.lower()}s")


class OwnerReferences:
    """A validating plugin. It calls the authorizer only if references change."""

    def __init__(self, authorizer: Authorizer, kinds: OwnerKinds) -> None:
        self._authorizer = authorizer
        self._kinds = kinds

    async def check(self, attributes: Attributes) -> None:
        """Raises `Forbidden`."""
        new, old = get_in(attributes.object, _OWNERS) or [], get_in(attributes.old_object, _OWNERS) or []
        if new == old or (attributes.kind.storage == "pods" and attributes.subresource == "status"):
            return
        if attributes.operation == "update":
            await self._check_may_delete(attributes)
        blocking = newly_blocking(new, old)
        if blocking and not await self._may_finalize_all(attributes.user):
            for reference in blocking:
                await self._check_may_finalize(reference, attributes)

    async def _check_may_delete(self, attributes: Attributes) -> None:
        kind = attributes.kind
        place = attributes.subresource, attributes.namespace, attributes.name
        asked = authorization.AuthorizerAttributes(
            attributes.user, "delete", "", kind.group, kind.version, kind.plural, *place
        )
        verdict = await self._authorizer.authorize(asked)
        if verdict.decision is not Decision.ALLOW:
            raise attributes.refused(f"cannot set an ownerRef on a resource you can't delete: {_reason(verdict)}")

    async def _may_finalize_all(self, user: User) -> bool:
        asked = authorization.AuthorizerAttributes(user, "update", "", "*", "*", "*", _FINALIZERS, "", "*")
        return (await self._authorizer.authorize(asked)).decision is Decision.ALLOW

    async def _check_may_finalize(self, reference: Tree, attributes: Attributes) -> None:
        version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
        resources = self._kinds.of(version, kind)
        if not resources:
            why = f"cannot find RESTMapping for APIVersion {version} Kind {kind}"
            none = f"no matches for kind {quote(kind)} in version {quote(version)}"
            raise attributes.refused(f"cannot set blockOwnerDeletion in this case because {why}: {none}")
        for group, served, plural, namespaced in resources:
            place = attributes.namespace if namespaced else "", reference.get("name", "")
            asked = authorization.AuthorizerAttributes(
                attributes.user, "update", "", group, served, plural, _FINALIZERS, *place
            )
            verdict = await self._authorizer.authorize(asked)
            if verdict.decision is not Decision.ALLOW:
                why = "if an ownerReference refers to a resource you can't set finalizers on"
                raise attributes.refused(f"cannot set blockOwnerDeletion {why}: {_reason(verdict)}")


def newly_blocking(new: Sequence[Tree], old: Sequence[Tree]) -> list[Tree]:
    """Return the references that block the deletion of their owner, and did not before."""
    before = {each.get("uid"): bool(each.get("blockOwnerDeletion")) for each in old}
    return [each for each in new if each.get("blockOwnerDeletion") and not before.get(each.get("uid"))]


def _reason(verdict: Authorization) -> str:
    return f"{verdict.reason}, {verdict.error or '<nil>'}"
