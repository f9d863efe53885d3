"""Decisions about kubelet certificate requests: approval, requeue times and expiry."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from controller_manager.common.api.certificates import (
    API_CLIENT,
    APPROVED,
    DENIED,
    FAILED,
    CertificateSigningRequest,
    RequestCondition,
    RequestSpec,
    RequestStatus,
)
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.timestamps import format_time
from controller_manager.testing.certificates import CLIENT_USAGES, authority, signing_request
from controllers.certificate_approving import NODE, SELF, claims, is_judged, next_look
from controllers.certificate_cleaning import end_of, expiry_of
from controllers.certificate_signing import is_waiting
from controllers.shared.certificate_requests import Asked

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
ASKED = Asked("system:node:n1", ("system:nodes",))
CERTIFICATE = authority(end=NOW + 30 * MINUTE).certificate


def request(
    *types: str, certificate: bytes = b"", made: datetime | None = NOW, judged: datetime | None = NOW
) -> CertificateSigningRequest:
    conditions = tuple(
        RequestCondition(type=one, status="True", last_update_time=format_time(judged) if judged else None)
        for one in types
    )
    return CertificateSigningRequest(
        metadata=ObjectMeta(name="r", creation_timestamp=format_time(made) if made else None),
        status=RequestStatus(conditions=conditions, certificate=certificate),
    )


@pytest.mark.parametrize(
    ("found", "waiting", "judged"),
    [
        (request(), False, False),
        (request(APPROVED), True, True),
        (request(DENIED), False, True),
        (request(APPROVED, DENIED), False, True),
        (request(APPROVED, FAILED), False, True),
        (request(FAILED), False, False),
        (request(APPROVED, certificate=b"x"), False, True),
        (request(certificate=b"x"), False, True),
    ],
)
def test_waiting_and_judged_by_conditions_and_certificate(
    found: CertificateSigningRequest, waiting: bool, judged: bool
) -> None:
    assert is_waiting(found) is waiting
    assert is_judged(found) is judged


@pytest.mark.parametrize(
    ("username", "asked", "changes", "expected"),
    [
        ("system:node:n1", ASKED, {}, [SELF, NODE]),
        ("system:node:n2", ASKED, {}, [NODE]),
        ("system:bootstrap:abc", ASKED, {}, [NODE]),
        ("system:node:n1", ASKED, {"signer_name": API_CLIENT}, []),
        ("system:node:n1", ASKED, {"usages": (*CLIENT_USAGES, "server auth")}, []),
        ("system:node:n1", Asked("system:node:n1", ("system:masters",)), {}, []),
        ("jane", Asked("jane", ("system:nodes",)), {}, []),
    ],
)
def test_allowed_claims_by_requester_and_usages(
    username: str, asked: Asked, changes: dict[str, object], expected: list[object]
) -> None:
    usual = signing_request("r", b"x").spec
    spec = {"signer_name": usual.signer_name, "usages": usual.usages, **changes}
    found = CertificateSigningRequest(spec=RequestSpec(username=username, **spec))
    assert list(claims(found, asked)) == expected


@pytest.mark.parametrize(
    ("age", "wait"), [(timedelta(), 1), (10 * MINUTE, 300), (timedelta(seconds=7), 7), (-HOUR, 1), (20 * HOUR, 300)]
)
def test_next_check_grows_with_age_of_request(age: timedelta, wait: float) -> None:
    assert next_look(request(made=NOW - age), NOW) == wait
    assert next_look(request(made=None), NOW) == 1


@pytest.mark.parametrize(
    ("found", "after"),
    [
        (request(), 24 * HOUR),
        (request(made=None), None),
        (request(APPROVED), 24 * HOUR),
        (request(APPROVED, made=NOW - 48 * HOUR), 24 * HOUR),
        (request(APPROVED, certificate=CERTIFICATE), 30 * MINUTE),
        (request(APPROVED, certificate=authority(end=NOW + 9 * HOUR).certificate), HOUR),
        (request(APPROVED, certificate=b"what some signer wrote"), HOUR),
        (request(DENIED), HOUR),
        (request(FAILED), HOUR),
        (request(APPROVED, FAILED), HOUR),
        (request(DENIED, judged=None), None),
        (request("Other"), None),
        (request(certificate=CERTIFICATE, judged=None), 24 * HOUR),
    ],
)
def test_expiry_of_request_by_condition(found: CertificateSigningRequest, after: timedelta | None) -> None:
    assert end_of(found) == (None if after is None else NOW + after)


def test_expiry_after_year_9999_is_capped() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert end_of(request(DENIED, judged=last)) == datetime.max.replace(tzinfo=UTC)


def test_expiry_of_unknown_certificate_version_is_none() -> None:
    der = x509.load_pem_x509_certificate(CERTIFICATE).public_bytes(Encoding.DER)
    odd = der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020109"), 1)
    assert expiry_of(CERTIFICATE) is not None
    assert expiry_of(b"-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n" % b64encode(odd)) is None
