"""Impersonation headers are refused."""

import pytest

from controller_manager.common.api.errors import ApiError, BadRequest, Forbidden
from controller_manager.common.serving.authentication import refuse_impersonation


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        ({"impersonate-user": "eve"}, Forbidden),
        ({"impersonate-user": "eve", "impersonate-group": "g"}, Forbidden),
        ({"impersonate-user": "eve", "impersonate-extra-scopes": ""}, Forbidden),
        ({"impersonate-group": "system:masters"}, BadRequest),
        ({"impersonate-group": ""}, BadRequest),
        ({"impersonate-uid": "1"}, BadRequest),
        ({"impersonate-extra-scopes": "x"}, BadRequest),
        ({"impersonate-extra-": ""}, BadRequest),
        ({"impersonate-user": "", "impersonate-group": "g"}, BadRequest),
    ],
)
def test_impersonation_headers_are_refused(headers: dict[str, str], refusal: type[ApiError]) -> None:
    with pytest.raises(refusal):
        refuse_impersonation({"host": "x", **headers})


@pytest.mark.parametrize(
    "headers",
    [{}, {"impersonate-user": ""}, {"impersonate-uid": ""}, {"impersonate-me": "x"}, {"x-remote-user": "eve"}],
)
def test_other_headers_are_not_impersonation(headers: dict[str, str]) -> None:
    refuse_impersonation({"host": "x", **headers})
