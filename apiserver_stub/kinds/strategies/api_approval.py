"""The approval that CustomResourceDefinitions in protected groups need, read from an annotation (KEP-1111)."""

from enum import Enum
from urllib.parse import urlsplit

import msgspec

from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.tree import Tree

APPROVAL = f"api-approved.{PLATFORM_DOMAIN}"
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"
_NEEDED = f'protected groups must have approval annotation "{APPROVAL}"'


class Approval(Enum):
    """The approval states of an API."""

    MISSING = "Missing"
    INVALID = "Invalid"
    APPROVED = "Approved"
    BYPASSED = "Bypassed"


def is_protected(group: str) -> bool:
    """Return whether a group belongs to Kubernetes and needs an approval."""
    return f".{group}".endswith((f".{GROUP_DOMAIN}", f".{PLATFORM_DOMAIN}"))


def approval_of(definition: Tree) -> tuple[Approval, str]:
    """Return the approval state of a definition and the reason for it."""
    text = definition["metadata"].get("annotations", {}).get(APPROVAL, "")
    if not text:
        return Approval.MISSING, f"{_NEEDED}, {_SEE}"
    if text.startswith("unapproved"):
        return Approval.BYPASSED, f"not approved: {msgspec.json.encode(text).decode()}"
    if _is_url(text):
        return Approval.APPROVED, f"approved in {text}"
    return Approval.INVALID, f'{_NEEDED} with either a URL or a reason starting with "unapproved", {_SEE}'


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
    except ValueError:
        return False
    return bool(url.scheme and url.netloc)
