"""Nothing is created in a namespace that is not there or is going, and the system's own namespaces stay."""

from collections.abc import Callable, Sequence

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.storage.interface import Compare
from apiserver_stub.watch_cache.row import Row
from controller_manager.api.errors import Cause, forbidden, not_found
from controller_manager.api.platform import SYSTEM_NAMESPACE

_NAMESPACES = "namespaces"
_PROTECTED = frozenset({"default", SYSTEM_NAMESPACE, "kube-public"})


def namespace_row(namespace: str) -> tuple[tuple[str, str], ...]:
    """Return resource and key of what must be there, settled, for something new in `namespace`; nothing if that is
    empty.
    """
    return ((_NAMESPACES, namespace),) if namespace else ()


class NamespaceLifecycle:
    """Plugin of what is created in namespaces, and of namespaces that are deleted; `get` reads the store."""

    def __init__(self, get: Callable[[str, str], Row | None]) -> None:
        self._get = get

    async def check_protected(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for the deletion of a namespace that stays."""
        if attributes.name in _PROTECTED:
            raise forbidden("", _NAMESPACES, attributes.name, "this namespace may not be deleted")

    async def check_alive(self, attributes: Attributes) -> None:
        """Raises `NotFound` for what is created in a namespace that is not there, `Forbidden` in one that is going."""
        if attributes.namespace:
            self._alive(attributes)

    async def keep_alive(self, attributes: Attributes) -> Sequence[Compare]:
        """Return the condition that the namespace stays as it is until the commit, on whatever server it is changed;
        raises the same.
        """
        if not attributes.namespace:
            return ()
        row = self._alive(attributes)
        return (Compare(row.resource, row.key, row.revision),)

    def _alive(self, attributes: Attributes) -> Row:
        row = self._get(_NAMESPACES, attributes.namespace)
        if row is None:
            raise not_found("", _NAMESPACES, attributes.namespace)
        if not row.field("metadata.deletionTimestamp"):
            return row
        kind, name = attributes.kind, attributes.namespace
        why = f"unable to create new content in namespace {name} because it is being terminated"
        message = f"namespace {name} is being terminated"
        cause = Cause(reason="NamespaceTerminating", message=message, field="metadata.namespace")
        raise forbidden(kind.group, kind.plural, attributes.name, why, cause)


def namespace_lifecycle(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin NamespaceLifecycle."""
    namespaces = NamespaceLifecycle(parts.store.get)
    return AdmissionPlugin(
        "NamespaceLifecycle",
        mutating=(
            Rule(namespaces.check_protected, ("delete",), (_NAMESPACES,)),
            Rule(namespaces.check_alive, ("create",), (ALL,)),
        ),
        allocation=(Rule(namespaces.keep_alive, ("create",), (ALL,)),),
    )
