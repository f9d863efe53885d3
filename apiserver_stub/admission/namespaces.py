"""Nothing is created in a namespace that is not there or is going, and the system's own namespaces stay."""

from collections.abc import Callable

from apiserver_stub.admission.chain import AdmissionRequest
from apiserver_stub.store.row import Row
from controller_manager.api.errors import Cause, forbidden, not_found
from controller_manager.api.platform import SYSTEM_NAMESPACE

_NAMESPACES = "namespaces"
_PROTECTED = frozenset({"default", SYSTEM_NAMESPACE, "kube-public"})


def namespace_row(namespace: str) -> tuple[tuple[str, str], ...]:
    """Resource and key of what must be there, settled, for something new in `namespace`; nothing if that is empty."""
    return ((_NAMESPACES, namespace),) if namespace else ()


class NamespaceLifecycle:
    """A step of admission; `get` reads the store."""

    def __init__(self, get: Callable[[str, str], Row | None]) -> None:
        self._get = get

    def __call__(self, request: AdmissionRequest) -> None:
        """Raises `NotFound` or `Forbidden`."""
        if request.operation == "delete":
            self._check_protected(request)
        elif request.operation == "create" and request.namespace and not request.subresource:
            self._check_alive(request)

    def _check_protected(self, request: AdmissionRequest) -> None:
        if request.kind.storage == _NAMESPACES and request.name in _PROTECTED and not request.subresource:
            raise forbidden("", _NAMESPACES, request.name, "this namespace may not be deleted")

    def _check_alive(self, request: AdmissionRequest) -> None:
        row = self._get(_NAMESPACES, request.namespace)
        if row is None:
            raise not_found("", _NAMESPACES, request.namespace)
        if not row.field("metadata.deletionTimestamp"):
            return
        kind, name = request.kind, request.namespace
        why = f"unable to create new content in namespace {name} because it is being terminated"
        message = f"namespace {name} is being terminated"
        cause = Cause(reason="NamespaceTerminating", message=message, field="metadata.namespace")
        raise forbidden(kind.group, kind.plural, request.name, why, cause)
