"""The variables of policy expressions for one request, computed on first use."""

from functools import cached_property
from typing import Any, NamedTuple

import orjson

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.matching import is_namespace, kind_of
from apiserver_stub.admission.review import admission_request, converted
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import not_found
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving.authorization import Authorizer

_NAMESPACES = "namespaces"
_EXEMPT = frozenset({
    *((f"admissionregistration.{GROUP_DOMAIN}", f"{kind}AdmissionPolicy{part}")
      for kind in ("Mutating", "Validating") for part in ("", "Binding")),
    *((f"authentication.{GROUP_DOMAIN}", kind) for kind in ("SelfSubjectReview", "TokenReview")),
    *((f"authorization.{GROUP_DOMAIN}", kind) for kind in (
        "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview",
    )),
})  # fmt: skip
_SEEN = frozenset({
    "name", "generateName", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
})  # fmt: skip


class ExpressionInput:
    """The `AdmissionRequest` of a request as one for `info`, created on first use."""

    def __init__(self, attributes: Attributes, info: ResourceInfo) -> None:
        self._attributes = attributes
        self._info = info

    @cached_property
    def request(self) -> Tree:
        return admission_request(self._attributes, self._info)

    @cached_property
    def own_request(self) -> Tree:
        if self._info is self._attributes.kind:
            return self.request
        return {**self.request, "resource": self.request["requestResource"]}


class Versioned(NamedTuple):
    """A request converted to a version of its resource: the objects, and the `AdmissionRequest`."""

    object: Tree | None
    old_object: Tree | None
    variables: ExpressionInput

    @property
    def request(self) -> Tree:
        """The `AdmissionRequest` that names the version."""
        return self.variables.request

    @property
    def own_request(self) -> Tree:
        """The `AdmissionRequest` for match conditions, with the version of the original request."""
        return self.variables.own_request


class RequestInputs:
    """The policy variables of a request. `decisions` caches the authorizer's answers."""

    def __init__(self, attributes: Attributes, store: WatchCache, authorizer: Authorizer) -> None:
        self.attributes = attributes
        self.authorizer = authorizer
        self.decisions: dict[Any, Any] = {}
        self._store = store
        self._versions: dict[int, Versioned] = {}
        self._namespace: Tree | None = None

    async def version(self, info: ResourceInfo) -> Versioned:
        """Return the request converted to a version of the resource. Raises the errors of conversion."""
        return self.known(info) or await self._converted(info)

    def known(self, info: ResourceInfo) -> Versioned | None:
        """Return the same, or None if that requires a conversion."""
        found = self._versions.get(info.serial)
        if found is None and not self._differs(info):
            found = self._add(info, self.attributes.object, self.attributes.old_object)
        return found

    def change(self, info: ResourceInfo, tree: Tree) -> None:
        """Replace the object of a version."""
        self._versions[info.serial] = self._versions[info.serial]._replace(object=tree)

    @property
    def namespace(self) -> Tree | None:
        """`namespaceObject`: the exposed fields of the namespace; None for cluster-scoped objects and namespaces.
        Raises `NotFound`.
        """
        attributes = self.attributes
        if self._namespace is None and attributes.namespace and not is_namespace(attributes.kind):
            row = self._store.get(_NAMESPACES, attributes.namespace)
            if row is None:
                raise not_found("", _NAMESPACES, attributes.namespace)
            tree = orjson.loads(row.data)
            metadata = {name: value for name, value in tree["metadata"].items() if name in _SEEN}
            self._namespace = {"metadata": metadata, "spec": tree.get("spec") or {}, "status": tree.get("status") or {}}
        return self._namespace

    def _differs(self, info: ResourceInfo) -> bool:
        asked, part = self.attributes.kind, self.attributes.subresource
        return info is not asked and kind_of(info, part) != kind_of(asked, part)

    async def _converted(self, info: ResourceInfo) -> Versioned:
        attributes = self.attributes
        new, old = attributes.object, attributes.old_object
        asked, part = attributes.kind, attributes.subresource
        new = None if new is None else await converted(new, asked, info, part)
        return self._add(info, new, None if old is None else await converted(old, asked, info, part))

    def _add(self, info: ResourceInfo, new: Tree | None, old: Tree | None) -> Versioned:
        found = self._versions[info.serial] = Versioned(new, old, ExpressionInput(self.attributes, info))
        return found


def is_exempt(info: ResourceInfo) -> bool:
    """Return whether policies skip a kind: policy kinds, so that none blocks its own removal, and the access reviews
    that other components depend on.
    """
    return (info.group, info.kind) in _EXEMPT


def subject_of(attributes: Attributes) -> str:
    """Return the name shown in errors: that of the request, or the name or `generateName` of its object."""
    named = attributes.requested_name
    if not named and attributes.object is not None:
        metadata = attributes.object.get("metadata") or {}
        named = metadata.get("name") or metadata.get("generateName") or ""
    return named or "Unknown"
