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


async def test_a_certificate_names_user_and_groups() -> None:
    user = await CHAIN.authenticate(Request("GET", "/", certificate=Certificate("jane", ("dev",))))
    assert user == User("jane", groups=("dev", "system:authenticated"))


async def test_a_group_is_not_named_twice() -> None:
    user = await CHAIN.authenticate(Request("GET", "/", certificate=Certificate("jane", ("system:authenticated",))))
    assert user.groups == ("system:authenticated",)


async def test_a_certificate_comes_before_a_token() -> None:
    assert (
        await CHAIN.authenticate(Request("GET", "/", headers=BEARER, certificate=Certificate("jane")))
    ).name == "jane"


async def test_a_certificate_without_name_leaves_it_to_the_token() -> None:
    assert (
        await CHAIN.authenticate(Request("GET", "/", headers=BEARER, certificate=Certificate("", ("dev",))))
    ).name == "joe"


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer forged"}])
async def test_a_stranger_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        await CHAIN.authenticate(Request("GET", "/", headers=headers))


@pytest.mark.parametrize("path", ["/version", "/healthz"])
async def test_public_paths_are_for_strangers_who_show_nothing(path: str) -> None:
    assert (await CHAIN.authenticate(Request("GET", path))).name == "system:anonymous"
    for shown in (
        Request("GET", path, headers={"authorization": "Bearer forged"}),
        Request("GET", path, certificate=Certificate("")),
    ):
        with pytest.raises(Unauthorized):
            await CHAIN.authenticate(shown)


async def test_headers_of_a_proxy_are_but_headers() -> None:
    headers = {**BEARER, "x-remote-user": "eve", "x-remote-group": "system:masters"}
    assert await CHAIN.authenticate(Request("GET", "/", headers=headers)) == User(
        "joe", groups=("system:authenticated",)
    )
