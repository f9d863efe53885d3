"""Approves client certificate requests of nodes after a SubjectAccessReview."""

from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from controller_manager.common.api.certificates import (
    APPROVED,
    DENIED,
    GROUP,
    NODE_CLIENT,
    REQUESTS,
    CertificateSigningRequest,
    RequestCondition,
)
from controller_manager.common.api.reviews import (
    SUBJECT_ACCESS_REVIEWS,
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from controller_manager.common.api.timestamps import time_of
from controller_manager.common.base.clock import utc_now
from controller_manager.framework import Context, ControllerSpec, For, Key, Options, PolicyRule, Requeue

from .shared.certificate_requests import (
    Asked,
    UnusableRequest,
    asked_for,
    node_client_problem,
    read_request,
)

_WORKERS = 5
# Minimum and maximum seconds until a requester without permission is checked again, when the request is twice as old.
_SOONEST, _LATEST = 1.0, 300.0


class ApprovingOptions(Options):
    """Certificate approving controller"""

    title: ClassVar[str] = "Certificate approving controller"


class NodePermission(NamedTuple):
    """A permission to request node certificates: the right to create a subresource of requests."""

    subresource: str
    message: str


SELF = NodePermission(
    "selfnodeclient", "Approved the client certificate of a kubelet for itself after a SubjectAccessReview"
)
NODE = NodePermission("nodeclient", "Approved the client certificate of a kubelet after a SubjectAccessReview")

# Observed: the request, its conditions, and the SubjectAccessReview of its requester.
# Decided:
#   approved, denied, issued, of another signer,
#   or not of the form that nodes use              nothing; another approver may decide
#   requester has one of the permissions           condition Approved
#   requester has none, or the review failed       retry later


class CertificateApprover:
    """Reconciles certificate requests."""

    def __init__(self, context: Context, options: ApprovingOptions) -> None:
        self._client = context.client
        self._requests = context.informers.get(REQUESTS)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Approve request `key`, if it qualifies for automatic approval."""
        request = self._requests.get(key)
        if request is None or is_judged(request) or request.spec.signer_name != NODE_CLIENT:
            return None
        try:
            asked = asked_for(read_request(request.spec.request))
        except UnusableRequest:
            return None
        found = list(claims(request, asked))
        for claim in found:
            if await self._may(request, claim):
                await self._approve(request, claim)
                return None
        return Requeue(next_look(request, utc_now())) if found else None

    async def _may(self, request: CertificateSigningRequest, claim: NodePermission) -> bool:
        """Return whether the requester has a permission."""
        sender = request.spec
        action = ResourceAttributes(group=GROUP, resource=REQUESTS.plural, subresource=claim.subresource, verb="create")
        spec = SubjectAccessReviewSpec(
            user=sender.username,
            uid=sender.uid,
            groups=sender.groups,
            extra=sender.extra,
            resource_attributes=action,
        )
        review = await self._client.create(SUBJECT_ACCESS_REVIEWS, SubjectAccessReview(spec=spec))
        return review.status.allowed and not review.status.denied

    async def _approve(self, request: CertificateSigningRequest, claim: NodePermission) -> None:
        verdict = RequestCondition(type=APPROVED, status="True", reason="AutoApproved", message=claim.message)
        conditions = (*request.status.conditions, verdict)
        status = replace(request.status, conditions=conditions)
        await self._client.update(REQUESTS, replace(request, status=status), subresource="approval")


SPECS = (
    ControllerSpec(
        name="certificatesigningrequest-approving-controller",
        queue="certificate",
        aliases=("csrapproving",),
        service_account="certificate-controller",
        reconciler=CertificateApprover,
        options=ApprovingOptions,
        workers=lambda _: _WORKERS,
        watches=(For(REQUESTS),),
        rbac=(
            PolicyRule(groups=(GROUP,), resources=("certificatesigningrequests",), verbs=("get", "list", "watch")),
            PolicyRule(groups=(GROUP,), resources=("certificatesigningrequests/approval",), verbs=("update",)),
            PolicyRule(groups=(GROUP,), resources=("signers",), verbs=("approve",), names=(NODE_CLIENT,)),
            PolicyRule(groups=("authorization.k8s.io",), resources=("subjectaccessreviews",), verbs=("create",)),
        ),
    ),
)


def is_judged(request: CertificateSigningRequest) -> bool:
    """Return whether a request needs no decision any more."""
    return bool(request.status.certificate) or any(request.condition(kind) for kind in (APPROVED, DENIED))


def claims(request: CertificateSigningRequest, asked: Asked) -> Iterator[NodePermission]:
    """Yield the permissions that allow a request of the form that nodes use: for the requester itself, and for
    any node.
    """
    if request.spec.signer_name != NODE_CLIENT or node_client_problem(asked, request.spec.usages):
        return
    if request.spec.username == asked.common_name:
        yield SELF
    yield NODE


def next_look(request: CertificateSigningRequest, now: datetime) -> float:
    """Return the seconds until the requester is checked again."""
    created = time_of(request.metadata.creation_timestamp)
    age = (now - created).total_seconds() if created else 0.0
    return min(max(_SOONEST, age), _LATEST)
