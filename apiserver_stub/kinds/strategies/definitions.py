"""The conditions of CustomResourceDefinitions and the reasons and messages that the server sets in them."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.strategies.api_approval import Approval, approval_of, is_protected
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
ESTABLISHED, NAMES_ACCEPTED, TERMINATING = "Established", "NamesAccepted", "Terminating"
NON_STRUCTURAL = "NonStructuralSchema"
APPROVED = "KubernetesAPIApprovalPolicyConformant"

DefinitionCondition = Mapping[str, Any]


def condition(kind: str, status: str, reason: str, message: str) -> DefinitionCondition:
    """Return a condition."""
    return MappingProxyType({"type": kind, "status": status, "reason": reason, "message": message})


INSTALLED = condition(ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted")
NOT_ACCEPTED = condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
BAD_BUNDLE = condition(ESTABLISHED, "False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
NO_CONFLICTS = condition(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found")
DELETION_PENDING = condition(
    TERMINATING,
    "True",
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
DELETION_RUNNING = condition(
    TERMINATING, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
)
DELETION_DONE = condition(TERMINATING, "False", "InstanceDeletionCompleted", "removed all instances")
NEVER_ESTABLISHED = condition(TERMINATING, "False", "NeverEstablished", "resource was never established")
BUILT_IN = condition(
    TERMINATING, "False", "OverlappingBuiltInResource", "instances overlap with built-in resources in storage"
)
_APPROVALS: Mapping[Approval, tuple[str, str]] = MappingProxyType({
    Approval.INVALID: ("False", "InvalidAnnotation"), Approval.MISSING: ("False", "MissingAnnotation"),
    Approval.APPROVED: ("True", "ApprovedAnnotation"), Approval.BYPASSED: ("False", "UnapprovedAnnotation"),
})  # fmt: skip


def approval_condition(definition: Tree) -> DefinitionCondition | None:
    """Return the condition about the API approval of a definition. None for groups that are not protected."""
    if not is_protected(get_in(definition, ("spec", "group")) or ""):
        return None
    approval, message = approval_of(definition)
    return condition(APPROVED, *_APPROVALS[approval], message)


def with_condition(conditions: Iterable[DefinitionCondition], new: DefinitionCondition) -> list[DefinitionCondition]:
    """Return the conditions with `new` replacing the one of its type, or appended. The transition time is kept if the
    status does not change.
    """
    now = format_time(utc_now())
    before = next((one for one in conditions if one.get("type") == new["type"]), None)
    since = before.get("lastTransitionTime") if before and before.get("status") == new["status"] else None
    made = {**(before or {}), **new, "lastTransitionTime": since or now}
    if before is None:
        return [*conditions, made]
    return [made if one is before else one for one in conditions]


def find_condition(definition: Tree, kind: str) -> DefinitionCondition | None:
    """Return the condition of a type, or None."""
    conditions: Iterable[DefinitionCondition] = get_in(definition, ("status", "conditions")) or ()
    return next((one for one in conditions if one.get("type") == kind), None)


def is_true(definition: Tree, kind: str) -> bool:
    """Return whether the condition of a type is True."""
    found = find_condition(definition, kind)
    return found is not None and found.get("status") == "True"
