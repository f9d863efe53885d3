"""The namespace plugins: nothing is created in a namespace that does not exist or is terminating, and system namespaces
cannot be deleted.
"""

from collections.abc import Callable, Sequence

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts, Create
from apiserver_stub.storage.interface import Compare
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import ApiError, Cause, forbidden, not_found
from controller_manager.common.api.platform import GROUP_DOMAIN, SYSTEM_NAMESPACE

_NAMESPACES = "namespaces"
_QUESTIONS = f"localsubjectaccessreviews.authorization.{GROUP_DOMAIN}"
_PROTECTED = frozenset({"default", SYSTEM_NAMESPACE, "kube-public"})


def namespace_row(namespace: str) -> tuple[tuple[str, str], ...]:
    """Return resource and key of the namespace row that a create depends on; nothing for an empty namespace."""
    return ((_NAMESPACES, namespace),) if namespace else ()


class NamespaceLifecycle:
    """Plugin for creates in namespaces and deletes of namespaces; `get` reads the store."""

    def __init__(self, get: Callable[[str, str], Row | None]) -> None:
        self._get = get

    def check_protected(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for the deletion of a protected namespace."""
        if attributes.name in _PROTECTED:
            raise forbidden("", _NAMESPACES, attributes.name, "this namespace may not be deleted")

    def check_alive(self, attributes: Attributes) -> None:
        """Raises `NotFound` for a create in a namespace that does not exist, `Forbidden` in a terminating one. Access
        reviews are exempt, so that they do not reveal which namespaces exist.
        """
        if attributes.namespace and attributes.kind.storage != _QUESTIONS:
            self._alive(attributes)

    async def keep_alive(self, attributes: Attributes) -> Sequence[Compare]:
        """Return the condition that the namespace does not change until the commit, on any server. Raises like
        `check_alive`.
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
        name = attributes.namespace
        why = f"unable to create new content in namespace {name} because it is being terminated"
        message = f"namespace {name} is being terminated"
        cause = Cause(reason="NamespaceTerminating", message=message, field="metadata.namespace")
        raise attributes.refused(why, cause)


class NamespaceAutoProvision:
    """Plugin for creates in namespaces; creates missing namespaces."""

    def __init__(self, get: Callable[[str, str], Row | None], create: Create) -> None:
        self._get = get
        self._create = create

    async def provide(self, attributes: Attributes) -> None:
        """Create the namespace of a request if it does not exist, unless it is a dry run. Raises `Forbidden`."""
        name = attributes.namespace
        if not name or attributes.dry_run or self._get(_NAMESPACES, name) is not None:
            return
        try:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self._create(f"/api/v1/{_NAMESPACES}", namespace)
        except ApiError as error:
            raise attributes.refused(error.message) from None


class NamespaceExists:
    """Plugin for writes in namespaces; `get` reads the store."""

    def __init__(self, get: Callable[[str, str], Row | None]) -> None:
        self._get = get

    async def check(self, attributes: Attributes) -> None:
        """Raises `NotFound` for a request in a namespace that does not exist."""
        if attributes.namespace and self._get(_NAMESPACES, attributes.namespace) is None:
            raise not_found("", _NAMESPACES, attributes.namespace)


def namespace_auto_provision(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin NamespaceAutoProvision, which is off by default."""
    provide = NamespaceAutoProvision(parts.store.get, parts.create).provide
    return AdmissionPlugin("NamespaceAutoProvision", mutating=(Rule(provide, ("create",), (ALL,), (ALL,)),))


def namespace_exists(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin NamespaceExists, which is off by default."""
    rule = Rule(NamespaceExists(parts.store.get).check, ("create", "update", "delete"), (ALL,), (ALL,))
    return AdmissionPlugin("NamespaceExists", validating=(rule,))


def namespace_lifecycle(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin NamespaceLifecycle."""
    namespaces = NamespaceLifecycle(parts.store.get)
    return AdmissionPlugin(
        "NamespaceLifecycle",
        mutating=(
            Rule(namespaces.check_protected, ("delete",), (_NAMESPACES,)),
            Rule(namespaces.check_alive, ("create",), (ALL,), (ALL,)),
        ),
        allocation=(Rule(namespaces.keep_alive, ("create",), (ALL,)),),
    )
