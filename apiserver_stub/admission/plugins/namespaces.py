"""Nothing is created in a namespace that is not there or is going, and the system's own namespaces stay."""

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
    """Return resource and key of what must be there, settled, for something new in `namespace`; nothing if that is
    empty.
    """
    return ((_NAMESPACES, namespace),) if namespace else ()


class NamespaceLifecycle:
    """Plugin of what is created in namespaces, and of namespaces that are deleted; `get` reads the store."""

    def __init__(self, get: Callable[[str, str], Row | None]) -> None:
        self._get = get

    def check_protected(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for the deletion of a namespace that stays."""
        if attributes.name in _PROTECTED:
            raise forbidden("", _NAMESPACES, attributes.name, "this namespace may not be deleted")

    def check_alive(self, attributes: Attributes) -> None:
        """Raises `NotFound` for what is created in a namespace that is not there, `Forbidden` in one that is going; not
        for a question about it, so that nobody learns which there are.
        """
        if attributes.namespace and attributes.kind.storage != _QUESTIONS:
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
        name = attributes.namespace
        why = f"unable to create new content in namespace {name} because it is being terminated"
        message = f"namespace {name} is being terminated"
        cause = Cause(reason="NamespaceTerminating", message=message, field="metadata.namespace")
        raise attributes.refused(why, cause)


class NamespaceAutoProvision:
    """Plugin of what is created in namespaces; has those that are not there created."""

    def __init__(self, get: Callable[[str, str], Row | None], create: Create) -> None:
        self._get = get
        self._create = create

    async def provide(self, attributes: Attributes) -> None:
        """Create the namespace of a request unless it is there, or the request is a trial. Raises `Forbidden`."""
        name = attributes.namespace
        if not name or attributes.dry_run or self._get(_NAMESPACES, name) is not None:
            return
        try:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self._create(f"/api/v1/{_NAMESPACES}", namespace)
        except ApiError as error:
            raise attributes.refused(error.message) from None


class NamespaceExists:
    """Plugin of what is written in namespaces; `get` reads the store."""

    def __init__(self, get: Callable[[str, str], Row | None]) -> None:
        self._get = get

    async def check(self, attributes: Attributes) -> None:
        """Raises `NotFound` for what is in a namespace that is not there."""
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
