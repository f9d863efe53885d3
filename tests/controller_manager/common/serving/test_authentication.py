"""Authentication of requests by certificate, token and proxy headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.errors import ServiceUnavailable, Unauthorized
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.authentication import (
    ANONYMOUS_USER,
    AnonymousAuthenticator,
    Authenticator,
    BearerTokenAuthenticator,
    RequestAuthenticator,
    RequestHeaderAuthenticator,
    RequestHeaderConfig,
    User,
    X509Authenticator,
    bearer_token,
)
from controller_manager.common.serving.tls import make_ca
from controller_manager.common.serving.trust import CLIENTS, PROXIES, Trust, digest

pytestmark = pytest.mark.virtual

CLIENT_CA, PROXY_CA, OTHER_CA = (make_ca(name) for name in ("clients", "proxies", "others"))
KNOWN = "system:authenticated"


def root(ca) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    return digest(x509.load_pem_x509_certificate(ca.certificate).public_bytes(Encoding.DER))


class Tokens:
    """Knows two tokens, and one that cannot be checked."""

    async def authenticate_token(self, token: str) -> User | None:
        if token == "unknowable":
            raise ServiceUnavailable("the API server is away")
        return {"good": User("bob", "7", ("b",), {"k": ("v",)}), "full": User("eve", groups=(KNOWN,))}.get(token)


CONFIG = RequestHeaderConfig(
    ("front",), ("X-Remote-User", "x-second"), ("x-remote-uid",), ("x-remote-group",), ("X-Extra-",)
)


def chain_of(trust: Trust, config: RequestHeaderConfig = CONFIG, tokens: Tokens | None = None) -> RequestAuthenticator:
    """Return the authenticators of every process; tokens are optional."""
    authenticators: list[Authenticator] = [
        RequestHeaderAuthenticator(trust, config),
        X509Authenticator(lambda certificate: trust.believes(CLIENTS, certificate)),
    ]
    if tokens is not None:
        authenticators.append(BearerTokenAuthenticator(tokens))
    return RequestAuthenticator(authenticators, AnonymousAuthenticator())


def chain(config: RequestHeaderConfig = CONFIG, *, tokens: bool = True) -> RequestAuthenticator:
    trust = Trust()
    trust.set(CLIENTS, CLIENT_CA.certificate)
    trust.set(PROXIES, PROXY_CA.certificate)
    return chain_of(trust, config, Tokens() if tokens else None)


def request_of(name: str = "", ca=None, groups=(), expires=float("inf"), repeated=None, **headers: str) -> Request:
    certificate = Certificate(name, tuple(groups), root(ca), expires) if ca else None
    plain = {key.replace("_", "-"): value for key, value in headers.items()}
    return Request("GET", "/", headers=plain, certificate=certificate, repeated=repeated or {})


AS_ALICE = {"x_remote_user": "alice"}

AUTHENTICATED = {
    "no credentials": (request_of(), ANONYMOUS_USER),
    "a client": (request_of("jane", CLIENT_CA, ("dev", "ops")), User("jane", groups=("dev", "ops", KNOWN))),
    "a client in the group of authenticated users": (
        request_of("jane", CLIENT_CA, (KNOWN,)),
        User("jane", groups=(KNOWN,)),
    ),
    "a token": (request_of(authorization="Bearer good"), User("bob", "7", ("b", KNOWN), {"k": ("v",)})),
    "a token owner in the group of authenticated users": (
        request_of(authorization="bearer full "),
        User("eve", groups=(KNOWN,)),
    ),
    "a certificate precedes a token": (
        request_of("jane", CLIENT_CA, authorization="Bearer good"),
        User("jane", groups=(KNOWN,)),
    ),
    "a token after an unusable certificate": (
        request_of("jane", OTHER_CA, authorization="Bearer full"),
        User("eve", groups=(KNOWN,)),
    ),
    "a certificate with its own identity": (
        Request("GET", "/", certificate=Certificate("jane", ("dev",), root(CLIENT_CA), uid="7", digest="ab")),
        User("jane", "7", ("dev", KNOWN), {"authentication.kubernetes.io/credential-id": ("X509SHA256=ab",)}),
    ),
    "a proxy for alice": (request_of("front", PROXY_CA, **AS_ALICE), User("alice", groups=(KNOWN,))),
    "proxy headers precede a forwarded token": (
        request_of("front", PROXY_CA, authorization="Bearer good", **AS_ALICE),
        User("alice", groups=(KNOWN,)),
    ),
    "a proxy for an anonymous user": (
        request_of("front", PROXY_CA, x_remote_user="system:anonymous", x_remote_group="system:unauthenticated"),
        User("system:anonymous", groups=("system:unauthenticated",)),
    ),
    "headers of a client": (
        request_of("jane", CLIENT_CA, x_remote_group="system:masters", **AS_ALICE),
        User("jane", groups=(KNOWN,)),
    ),
    "headers without a proxy certificate": (request_of(x_remote_group="system:masters", **AS_ALICE), ANONYMOUS_USER),
    "headers of the owner of a token": (
        request_of(authorization="Bearer full", **AS_ALICE),
        User("eve", groups=(KNOWN,)),
    ),
    "impersonation": (request_of("jane", CLIENT_CA, impersonate_user="root"), User("jane", groups=(KNOWN,))),
    "another scheme": (request_of(authorization="Basic cm9vdDpyb290"), ANONYMOUS_USER),
    "an empty header": (request_of(authorization=""), ANONYMOUS_USER),
    "a scheme without a token": (request_of(authorization="Bearer "), ANONYMOUS_USER),
    "a token after two spaces is not a token": (request_of(authorization="Bearer  good"), ANONYMOUS_USER),
    "the next authenticator is tried after a refusal": (
        request_of("front", PROXY_CA, x_remote_user="al\udce9ce", authorization="Bearer full"),
        User("eve", groups=(KNOWN,)),
    ),
}


@pytest.mark.parametrize("case", AUTHENTICATED)
async def test_authenticated_cases(case):
    request, user = AUTHENTICATED[case]
    assert await chain().authenticate(request) == user


REFUSED = {
    "a client of another authority": request_of("admin", OTHER_CA, ("system:masters",)),
    "a certificate of an unknown authority": Request("GET", "/", certificate=Certificate("admin")),
    "a client whose certificate has expired": request_of("jane", CLIENT_CA, expires=1.0),
    "a client with an ambiguous uid": Request(
        "GET", "/", certificate=Certificate("jane", (), root(CLIENT_CA), uid=None)
    ),
    "a proxy as a client": request_of("front", PROXY_CA),
    "a proxy whose certificate has expired": request_of("front", PROXY_CA, expires=1.0, **AS_ALICE),
    "a proxy that is not allowed": request_of("back", PROXY_CA, **AS_ALICE),
    "a proxy whose name differs in case": request_of("FRONT", PROXY_CA, **AS_ALICE),
    "a proxy of another authority": request_of("front", OTHER_CA, **AS_ALICE),
    "a proxy without a user name": request_of("front", PROXY_CA, x_remote_user="", x_remote_group="system:masters"),
    "a header with underscores": Request(
        "GET", "/", headers={"x_remote_user": "alice"}, certificate=Certificate("front", root=root(PROXY_CA))
    ),
    "a name that is no text": request_of("front", PROXY_CA, x_remote_user="al\udce9ce"),
    "a group that is no text": request_of("front", PROXY_CA, x_remote_group="\udce9", **AS_ALICE),
    "an unknown token": request_of(authorization="Bearer forged"),
    "a token that cannot be one": request_of(authorization="Bearer good x"),
    "two tokens": request_of(authorization="Bearer good, Bearer full"),
    "a token that is no text": request_of(authorization="Bearer go\udce9d"),
    "a token with a control character": request_of(authorization="Bearer go\x0bod"),
    "a huge token": request_of(authorization=f"Bearer {'a' * 20_000}"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_unauthorized_cases(case):
    with pytest.raises(Unauthorized):
        await chain().authenticate(REFUSED[case])


async def test_token_that_cannot_be_checked_is_unauthorized():
    with pytest.raises(Unauthorized):
        await chain().authenticate(request_of(authorization="Bearer unknowable"))


async def test_token_without_authenticator_is_anonymous():
    assert await chain(tokens=False).authenticate(request_of(authorization="Bearer good")) == ANONYMOUS_USER


async def test_without_allowed_names_every_proxy_may_set_headers():
    any_proxy = RequestHeaderConfig(username_headers=("x-remote-user",))
    found = await chain(any_proxy).authenticate(request_of("back", PROXY_CA, **AS_ALICE))
    assert found.name == "alice"


async def test_one_authority_may_sign_for_clients_and_proxies():
    trust = Trust()
    for purpose in (CLIENTS, PROXIES):
        trust.set(purpose, CLIENT_CA.certificate)
    both = chain_of(trust)
    assert (await both.authenticate(request_of("front", CLIENT_CA, **AS_ALICE))).name == "alice"
    assert (await both.authenticate(request_of("front", CLIENT_CA))).name == "front"
    assert (await both.authenticate(request_of("back", CLIENT_CA, **AS_ALICE))).name == "back"


async def test_authentication_ends_with_expiry_or_authority():
    trust = Trust()
    trust.set(CLIENTS, CLIENT_CA.certificate)
    known = chain_of(trust)
    request = request_of("jane", CLIENT_CA, expires=wall_seconds() + 10)
    assert (await known.authenticate(request)).name == "jane"
    trust.set(CLIENTS, OTHER_CA.certificate)
    with pytest.raises(Unauthorized):
        await known.authenticate(request)
    trust.set(CLIENTS, OTHER_CA.certificate + CLIENT_CA.certificate)
    assert (await known.authenticate(request)).name == "jane"


def test_text_between_certificates_is_dropped():
    trust = Trust()
    trust.set(CLIENTS, "# die Behörde\n".encode() + CLIENT_CA.certificate)
    assert trust.authorities == CLIENT_CA.certificate


def test_request_headers_are_decoded():
    request = Request(
        "GET",
        "/",
        headers={
            "x-remote-user": "",
            "x-second": "al, ice",
            "x-remote-group": "a, b, , c",
            "x-remote-uid": "7",
            "x-extra-scopes": "r, w",
            "x-extra-ex%41mple.org%2fkey": "v",
            "x-extra-bro%ken": "w",
            "x-extra": "no",
            "x_extra_other": "no",
        },
        repeated={"x-remote-group": ("a, b", "", "c"), "x-extra-scopes": ("r", "w")},
    )
    extra = {"scopes": ("r", "w"), "exAmple.org/key": ("v",), "bro%ken": ("w",)}
    assert CONFIG.user_of(request) == User("al, ice", "7", ("a, b", "c"), extra)


@given(st.text(max_size=40))
def test_any_authorization_header_parses(text):
    found = bearer_token(Request("GET", "/", headers={"authorization": text}))
    assert not found or text.strip().lower().startswith("bearer ")
