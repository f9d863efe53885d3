"""Approves the requests of nodes for client certificates, once the API server says that they may make them."""

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
from controller_manager.common.options import Options
from controller_manager.framework.controller import Context, ControllerSpec, For, Key, PolicyRule, Requeue

from .shared.certificate_requests import (
    Asked,
    UnusableRequest,
    asked_for,
    node_client_problem,
    read_request,
)

_WORKERS = 5
# Who may not yet, may later: the next look comes when the request is twice as old, within these bounds (seconds).
_SOONEST, _LATEST = 1.0, 300.0


class ApprovingOptions(Options):
    """Certificate approving controller"""

    title: ClassVar[str] = "Certificate approving controller"


class NodePermission(NamedTuple):
    """A right of nodes to ask for certificates: a subresource of requests that it needs to be able to create."""

    subresource: str
    message: str


SELF = NodePermission(
    "selfnodeclient", "Approved the client certificate of a kubelet for itself after a SubjectAccessReview"
)
NODE = NodePermission("nodeclient", "Approved the client certificate of a kubelet after a SubjectAccessReview")

# Observed: the request, its verdict, and what the API server says of its sender.
# Decided:
#   approved, denied or issued, of another signer,
#   or not such as a node sends                          nothing; somebody else may judge it
#   the sender may create one of its claims              condition Approved
#   may not, or nobody knows                             look again later


class CertificateApprover:
    """Reconciles one request, named by the key."""

    def __init__(self, context: Context, options: ApprovingOptions) -> None:
        self._client = context.client
        self._requests = context.informers.get(REQUESTS)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Approve request `key`, if it is one of those that need no human."""
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
        """Return whether whoever sent the request may make such a claim."""
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
    """Return whether there is nothing left to decide."""
    return bool(request.status.certificate) or any(request.condition(kind) for kind in (APPROVED, DENIED))


def claims(request: CertificateSigningRequest, asked: Asked) -> Iterator[NodePermission]:
    """Return what a request is, if it is such as a node sends: for the sender itself, and for any node."""
    if request.spec.signer_name != NODE_CLIENT or node_client_problem(asked, request.spec.usages):
        return
    if request.spec.username == asked.common_name:
        yield SELF
    yield NODE


def next_look(request: CertificateSigningRequest, now: datetime) -> float:
    """Seconds until the sender is asked about again."""
    created = time_of(request.metadata.creation_timestamp)
    age = (now - created).total_seconds() if created else 0.0
    return min(max(_SOONEST, age), _LATEST)
