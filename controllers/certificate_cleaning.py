"""Deletes old certificate requests, including those for pods (KEP-4317)."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from controller_manager.common.api.certificates import (
    APPROVED,
    DENIED,
    FAILED,
    GROUP,
    POD_REQUESTS,
    REQUESTS,
    CertificateSigningRequest,
)
from controller_manager.common.api.errors import NotFound
from controller_manager.common.api.timestamps import nonzero_time, parse_time
from controller_manager.common.base.clock import utc_now
from controller_manager.framework import Context, ControllerSpec, For, Key, Options, PolicyRule, Requeue

POD_CERTIFICATES = "PodCertificateRequest"
FOR_PODS = timedelta(minutes=15)
DONE = timedelta(hours=1)
OPEN = timedelta(hours=24)


class CleaningOptions(Options):
    """Certificate request cleaner"""

    title: ClassVar[str] = "Certificate request cleaner"


# Observed: the request, its creation time, its conditions with their times, the end of its certificate.
# Decided, whichever comes first:
#   no condition                   deleted 24 h after creation
#   approved but not issued        24 h after approval
#   approved and issued            1 h after approval, or when the certificate expires
#   denied, failed                 1 h after that
# A request for a pod is always deleted 15 minutes after creation.


class CertificateCleaner:
    """Reconciles certificate requests."""

    def __init__(self, context: Context, options: CleaningOptions) -> None:
        self._client = context.client
        self._requests = context.informers.get(REQUESTS)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete request `key` when it is due, else requeue."""
        request = self._requests.get(key)
        end = end_of(request) if request is not None else None
        if request is None or end is None:
            return None
        left = (end - utc_now()).total_seconds()
        if left > 0:
            return Requeue(left)
        with contextlib.suppress(NotFound):
            meta = request.metadata
            await self._client.delete(REQUESTS, key, uid=meta.uid, resource_version=meta.resource_version)
        return None


class PodCertificateCleaner:
    """Reconciles certificate requests of pods."""

    def __init__(self, context: Context, options: CleaningOptions) -> None:
        self._client = context.client
        self._requests = context.informers.get(POD_REQUESTS)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete request `key` when it is due, else requeue."""
        request = self._requests.get(key)
        created = nonzero_time(request.metadata.creation_timestamp) if request is not None else ""
        if request is None or not created:
            return None
        left = (_later(created, FOR_PODS) - utc_now()).total_seconds()
        if left > 0:
            return Requeue(left)
        with contextlib.suppress(NotFound):
            await self._client.delete(POD_REQUESTS, key, uid=request.metadata.uid)
        return None


SPECS = (
    ControllerSpec(
        name="certificatesigningrequest-cleaner-controller",
        aliases=("csrcleaner",),
        service_account="certificate-controller",
        reconciler=CertificateCleaner,
        options=CleaningOptions,
        watches=(For(REQUESTS),),
        rbac=(
            PolicyRule(
                groups=(GROUP,), resources=("certificatesigningrequests",), verbs=("get", "list", "watch", "delete")
            ),
        ),
    ),
    ControllerSpec(
        name="podcertificaterequest-cleaner-controller",
        service_account="podcertificaterequestcleaner",
        gates=(POD_CERTIFICATES,),
        reconciler=PodCertificateCleaner,
        options=CleaningOptions,
        watches=(For(POD_REQUESTS),),
        rbac=(PolicyRule(groups=(GROUP,), resources=("podcertificaterequests",), verbs=("list", "watch", "delete")),),
    ),
)


def end_of(request: CertificateSigningRequest) -> datetime | None:
    """Return when a request is deleted, or None."""
    return min(_ends(request), default=None)


def _ends(request: CertificateSigningRequest) -> Iterator[datetime]:
    conditions, certificate = request.status.conditions, request.status.certificate
    if not conditions and (created := nonzero_time(request.metadata.creation_timestamp)):
        yield _later(created, OPEN)
    for condition in conditions:
        updated = nonzero_time(condition.last_update_time)
        if not updated:
            continue
        if condition.type in (DENIED, FAILED):
            yield _later(updated, DONE)
        elif condition.type == APPROVED:
            yield _later(updated, DONE if certificate else OPEN)
    if certificate and request.condition(APPROVED) and (expiry := expiry_of(certificate)):
        yield expiry


def _later(moment: str, period: timedelta) -> datetime:
    """Return a time plus a period. Approvers may write any time, including the last representable one."""
    try:
        return parse_time(moment) + period
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def expiry_of(certificate: bytes) -> datetime | None:
    """Return when the first certificate (PEM) expires, or None if it cannot be parsed."""
    from cryptography import x509  # --help does without

    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except (ValueError, x509.InvalidVersion):
        return None
