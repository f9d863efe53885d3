"""Current roles and bindings, read from the watch cache: the roles of each subject."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from apiserver_stub.authz.rbac.rules import RoleRules
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, Corrupt, Row
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.rbac import GROUP, ClusterRole, Role, RoleBinding, RoleRef, Subject
from controller_manager.common.base.log.formats import quote
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorization, Decision

ROLES, CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
BINDINGS, CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"
_DECODERS: Mapping[str, Decoder[Any]] = MappingProxyType(
    {
        ROLES: Decoder(Role),
        CLUSTER_ROLES: Decoder(ClusterRole),
        BINDINGS: Decoder(RoleBinding),
        CLUSTER_BINDINGS: Decoder(RoleBinding),
    }
)
# Namespace of a binding (empty for the cluster's), kind of a subject, its name.
_Subject = tuple[str, str, str]
_REMEMBERED = 256  # cached decoded rows; the default roles fit, which helps tests that start many servers
_NO_BINDINGS: Mapping[str, "_Binding"] = MappingProxyType({})


class Grant(NamedTuple):
    """A role of a user, and the resulting decision."""

    role: RoleRules
    decision: Authorization


class _Binding(NamedTuple):
    """A binding: row key, role, subjects by lookup key, and cached decisions."""

    key: str
    role: RoleRef
    subjects: Mapping[_Subject, Subject]
    decisions: dict[_Subject, Authorization]


class Bindings:
    """The roles and bindings in the watch cache, by subject. `changed` is called with the namespace in which
    permissions changed, or None if that may be any.
    """

    def __init__(self, store: WatchCache, changed: Callable[[str | None], None]) -> None:
        self._store = store
        self._changed = changed
        self._roles: dict[str, RoleRules] = {}  # by row key; those of cluster roles have no slash
        self._bindings: dict[tuple[str, str], _Binding] = {}  # by resource and key
        self._by_subject: dict[_Subject, dict[str, _Binding]] = {}
        self._namespaces: dict[str, int] = {}  # number of bindings in each

    def read(self) -> None:
        """Read the existing rows and subscribe to changes."""
        for resource in _DECODERS:
            for row in self._store.snapshot(resource).items():
                self._put(row)
        self._store.subscribe(self._on_changes)

    def is_bound(self, namespace: str) -> bool:
        """Return whether a namespace (empty: the cluster) has any binding."""
        return namespace in self._namespaces

    def role(self, reference: RoleRef, namespace: str) -> RoleRules | None:
        """Return the role that a binding in a namespace refers to; None if it does not exist."""
        match reference.kind:
            case "Role":
                return self._roles.get(f"{namespace}/{reference.name}")
            case "ClusterRole":
                return self._roles.get(reference.name)
        return None

    def granted(self, user: User, namespace: str) -> Iterator[Grant | str]:
        """Yield the roles that bindings in a namespace (empty: in the cluster) grant to a user, in the order of binding
        names; for a missing role, an error text.
        """
        found: dict[str, tuple[_Binding, _Subject]] = {}
        for subject in ((namespace, "User", user.name), *((namespace, "Group", group) for group in user.groups)):
            for key, binding in self._by_subject.get(subject, _NO_BINDINGS).items():
                found.setdefault(key, (binding, subject))
        for key in sorted(found):
            binding, subject = found[key]
            role = self.role(binding.role, namespace)
            if role is None:
                yield missing(binding.role)
            else:
                yield Grant(role, binding.decisions.get(subject) or _allowed(binding, subject))

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource in _DECODERS:
                self._put(change.row, deleted=change.deleted)

    def _put(self, row: Row, *, deleted: bool = False) -> None:
        found = None if deleted else _decoded(row)
        if row.resource in (ROLES, CLUSTER_ROLES):
            changed = self._put_role(row.key, found)
        else:
            changed = self._put_binding(row, None if found is None else _binding(row, found))
        if changed:
            self._changed(None if row.resource == CLUSTER_ROLES else row.namespace)

    def _put_role(self, key: str, role: RoleRules | None) -> bool:
        known = self._roles.get(key)
        if role is None:
            return self._roles.pop(key, None) is not None
        if known is not None and known.rules == role.rules:
            return False
        self._roles[key] = role
        return True

    def _put_binding(self, row: Row, binding: _Binding | None) -> bool:
        place = row.resource, row.key
        known = self._bindings.get(place)
        if known and binding and (known.role, known.subjects) == (binding.role, binding.subjects):
            return False
        if known is not None:
            del self._bindings[place]
            self._forget(known, row.namespace)
        if binding is not None:
            self._bindings[place] = binding
            for subject in binding.subjects:
                self._by_subject.setdefault(subject, {})[binding.key] = binding
            self._namespaces[row.namespace] = self._namespaces.get(row.namespace, 0) + 1
        return known is not binding

    def _forget(self, binding: _Binding, namespace: str) -> None:
        for subject in binding.subjects:
            bindings = self._by_subject[subject]
            del bindings[binding.key]
            if not bindings:
                del self._by_subject[subject]
        self._namespaces[namespace] -= 1
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]


def missing(reference: RoleRef) -> str:
    """Return the error text for a missing role."""
    if reference.kind not in ("Role", "ClusterRole"):
        return f"unsupported role reference kind: {quote(reference.kind)}"
    return f"{reference.kind.lower()}.{GROUP} {quote(reference.name)} not found"


def _decoded(row: Row) -> Any:
    """Return the rules of a role, or a binding; None if it cannot be decoded (logged when the store is opened)."""
    try:
        return _read(row.resource, row.data)
    except (Corrupt, msgspec.DecodeError):
        return None


@lru_cache(maxsize=_REMEMBERED)
def _read(resource: str, data: bytes) -> Any:
    found = _DECODERS[resource].decode(data)
    return RoleRules(found.rules) if resource in (ROLES, CLUSTER_ROLES) else found


def _binding(row: Row, found: RoleBinding) -> _Binding:
    """Return a binding by its subjects: of several that are one and the same user, the first."""
    subjects: dict[_Subject, Subject] = {}
    for subject in found.subjects:
        namespace, kind, name = row.namespace, subject.kind, subject.name
        if kind == "ServiceAccount":
            kind, name = "User", f"system:serviceaccount:{subject.namespace or namespace}:{name}"
            if not (subject.namespace or namespace):
                continue
        subjects.setdefault((namespace, kind, name), subject)
    return _Binding(row.key, found.role_ref, subjects, {})


def _allowed(binding: _Binding, found: _Subject) -> Authorization:
    """Return the decision of a binding, whose reason names the binding, the role and the subject."""
    namespace, _, name = binding.key.rpartition("/")
    kind, named = ("RoleBinding", f"{name}/{namespace}") if namespace else ("ClusterRoleBinding", name)
    subject = binding.subjects[found]
    whom = subject.name
    if subject.kind == "ServiceAccount":
        whom = f"{whom}/{subject.namespace or namespace}"
    role = f"{binding.role.kind} {quote(binding.role.name)}"
    reason = f"RBAC: allowed by {kind} {quote(named)} of {role} to {subject.kind} {quote(whom)}"
    decision = binding.decisions[found] = Authorization(Decision.ALLOW, reason)
    return decision
