"""What the writer of a subresource may change of what that subresource reaches, as a table."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from apiserver_stub.admission.chain import AdmissionRequest
from apiserver_stub.call import Tree
from apiserver_stub.kinds.certificate_request import REQUESTS, check_status, check_verdict
from apiserver_stub.kinds.pod_life import check_added, check_resize
from controller_manager.api.errors import Cause, invalid

Check = Callable[[Tree, Tree], Iterator[Cause]]

_RULES: Mapping[tuple[str, str], Check] = MappingProxyType({
    ("pods", "ephemeralcontainers"): check_added,
    ("pods", "resize"): check_resize,
    (REQUESTS, "approval"): check_verdict,
    (REQUESTS, "status"): check_status,
})  # fmt: skip


def part_rules(request: AdmissionRequest) -> None:
    """A last step of admission: the change is prepared, so that all it holds is the subresource's. Raises `Invalid`."""
    check = _RULES.get((request.kind.storage, request.subresource)) if request.subresource else None
    if check is None or request.old is None:
        return
    problems = list(check(request.tree, request.old))
    if problems:
        raise invalid(request.kind.group, request.kind.kind, request.name, problems)
