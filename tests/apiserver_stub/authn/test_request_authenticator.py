"""The first authenticator that knows the caller decides; nobody knowing it is a refusal."""

import pytest

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.authn.request_authenticator import RequestAuthenticator
from apiserver_stub.authn.tokens import BearerTokens, StaticTokens
from apiserver_stub.call import User
from controller_manager.api.errors import BadRequest, Forbidden, Unauthorized
from controller_manager.api.wire import Certificate, Request

TOKENS = BearerTokens([StaticTokens({"token": User("joe")}, ["us"]).find], ["us"])
WHO = RequestAuthenticator([ClientCertificates(), TOKENS])
BEARER = {"authorization": "Bearer token"}


def test_a_certificate_names_user_and_groups() -> None:
    user = WHO(Request("GET", "/", certificate=Certificate("jane", ("dev",))))
    assert user == User("jane", groups=("dev", "system:authenticated"))


def test_a_group_is_not_named_twice() -> None:
    user = WHO(Request("GET", "/", certificate=Certificate("jane", ("system:authenticated",))))
    assert user.groups == ("system:authenticated",)


def test_a_certificate_comes_before_a_token() -> None:
    assert WHO(Request("GET", "/", headers=BEARER, certificate=Certificate("jane"))).name == "jane"


def test_a_certificate_without_name_leaves_it_to_the_token() -> None:
    assert WHO(Request("GET", "/", headers=BEARER, certificate=Certificate("", ("dev",)))).name == "joe"


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer forged"}])
def test_a_stranger_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        WHO(Request("GET", "/", headers=headers))


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-uid", "impersonate-extra-scopes"])
def test_nobody_is_served_who_would_be_another(header: str) -> None:
    with pytest.raises(Forbidden, match="serves no impersonation"):
        WHO(Request("GET", "/", headers={**BEARER, "impersonate-user": "eve", header: "x"}))
    with pytest.raises(BadRequest, match="Impersonate-User"):
        WHO(Request("GET", "/", headers={**BEARER, header: "x"}))


def test_who_is_not_known_learns_that_first() -> None:
    with pytest.raises(Unauthorized):
        WHO(Request("GET", "/", headers={"impersonate-user": "eve"}))


def test_headers_of_a_proxy_are_but_headers() -> None:
    headers = {**BEARER, "x-remote-user": "eve", "x-remote-group": "system:masters"}
    assert WHO(Request("GET", "/", headers=headers)) == User("joe", groups=("system:authenticated",))
