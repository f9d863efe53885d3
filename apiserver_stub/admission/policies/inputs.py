"""The values of one request that expressions of policies are given, each made when it is first asked for."""

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
    """The `AdmissionRequest` of a request as one for `info`, made when it is asked for."""

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
    """A request as one for a version of its resource: the objects in that version, and what is told of it."""

    object: Tree | None
    old_object: Tree | None
    told: ExpressionInput

    @property
    def request(self) -> Tree:
        """The `AdmissionRequest` that names the version."""
        return self.told.request

    @property
    def own_request(self) -> Tree:
        """The same as match conditions are given it: it names the version of the resource that was asked for."""
        return self.told.own_request


class RequestInputs:
    """What policies are given about a request. `decisions` are the answers of the authorizer so far, by question."""

    def __init__(self, attributes: Attributes, store: WatchCache, authorizer: Authorizer) -> None:
        self.attributes = attributes
        self.authorizer = authorizer
        self.decisions: dict[Any, Any] = {}
        self._store = store
        self._versions: dict[int, Versioned] = {}
        self._namespace: Tree | None = None

    async def version(self, info: ResourceInfo) -> Versioned:
        """Return the request as one for a resource in that version. Raises what a conversion does."""
        return self.known(info) or await self._converted(info)

    def known(self, info: ResourceInfo) -> Versioned | None:
        """Return the same, if nothing has to be converted for it."""
        found = self._versions.get(info.serial)
        if found is None and not self._differs(info):
            found = self._add(info, self.attributes.object, self.attributes.old_object)
        return found

    def change(self, info: ResourceInfo, tree: Tree) -> None:
        """Let the object of a version that is known be another one."""
        self._versions[info.serial] = self._versions[info.serial]._replace(object=tree)

    @property
    def namespace(self) -> Tree | None:
        """`namespaceObject`: the namespace as far as it is shown; None for what is in none, and for namespaces. Raises
        `NotFound`.
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
    """Return whether policies are never asked about a kind: their own, so that none forbids its own removal, and the
    questions about users and rights that everything else depends on.
    """
    return (info.group, info.kind) in _EXEMPT


def subject_of(attributes: Attributes) -> str:
    """Return the name that refusals are about: that of the request, or else what its object says of its name."""
    named = attributes.requested_name
    if not named and attributes.object is not None:
        metadata = attributes.object.get("metadata") or {}
        named = metadata.get("name") or metadata.get("generateName") or ""
    return named or "Unknown"
