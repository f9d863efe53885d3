"""The first authenticator that knows the caller decides; a caller that none knows is rejected."""

import pytest

from apiserver_stub.authn.certificate import ClientCertificates
from apiserver_stub.authn.tokens import StaticTokens, TokenAuthenticatorChain
from apiserver_stub.authz.always import PUBLIC
from controller_manager.common.api.errors import Unauthorized
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.serving.authentication import (
    AnonymousAuthenticator,
    BearerTokenAuthenticator,
    RequestAuthenticator,
    User,
    WebSocketTokenAuthenticator,
    X509Authenticator,
)

TOKENS = TokenAuthenticatorChain([StaticTokens({"token": User("joe")}, ["us"]).find], ["us"])
CHAIN = RequestAuthenticator(
    [
        X509Authenticator(ClientCertificates().believes),
        BearerTokenAuthenticator(TOKENS),
        WebSocketTokenAuthenticator(TOKENS),
    ],
    AnonymousAuthenticator(PUBLIC),
)
BEARER = {"authorization": "Bearer token"}


async def test_certificate_names_user_and_groups() -> None:
    user = await CHAIN.authenticate(Request("GET", "/", certificate=Certificate("jane", ("dev",))))
    assert user == User("jane", groups=("dev", "system:authenticated"))


async def test_groups_have_no_duplicates() -> None:
    user = await CHAIN.authenticate(Request("GET", "/", certificate=Certificate("jane", ("system:authenticated",))))
    assert user.groups == ("system:authenticated",)


async def test_certificate_takes_precedence_over_token() -> None:
    assert (
        await CHAIN.authenticate(Request("GET", "/", headers=BEARER, certificate=Certificate("jane")))
    ).name == "jane"


async def test_certificate_without_name_falls_back_to_token() -> None:
    assert (
        await CHAIN.authenticate(Request("GET", "/", headers=BEARER, certificate=Certificate("", ("dev",))))
    ).name == "joe"


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer forged"}])
async def test_unknown_caller_is_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        await CHAIN.authenticate(Request("GET", "/", headers=headers))


@pytest.mark.parametrize("path", ["/version", "/healthz"])
async def test_public_paths_allow_anonymous_without_credentials(path: str) -> None:
    assert (await CHAIN.authenticate(Request("GET", path))).name == "system:anonymous"
    for shown in (
        Request("GET", path, headers={"authorization": "Bearer forged"}),
        Request("GET", path, certificate=Certificate("")),
    ):
        with pytest.raises(Unauthorized):
            await CHAIN.authenticate(shown)


async def test_untrusted_proxy_headers_are_ignored() -> None:
    headers = {**BEARER, "x-remote-user": "eve", "x-remote-group": "system:masters"}
    assert await CHAIN.authenticate(Request("GET", "/", headers=headers)) == User(
        "joe", groups=("system:authenticated",)
    )
