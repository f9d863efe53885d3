"""Response headers for browsers, and those that close connections."""

import pytest

from apiserver_stub.common.flags import ServingOptions
from apiserver_stub.server.response_headers import with_headers
from controller_manager.common.api.wire import Request, Response

# Headers that kube-apiserver 1.36 adds for an allowed origin.
CORS = {
    "access-control-allow-credentials": "true",
    "access-control-allow-headers": "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, "
    "X-Requested-With, If-Modified-Since",
    "access-control-allow-methods": "POST, GET, OPTIONS, PUT, DELETE, PATCH",
    "access-control-expose-headers": "Date",
}


async def handle(request: Request) -> Response:
    return Response(200, {"a": "b"}, b"answered")


async def send(options: ServingOptions, method: str = "GET", **headers: str) -> Response:
    return await with_headers(handle, options)(Request(method, "/api", (), headers))


def test_handler_is_unchanged_without_flags() -> None:
    assert with_headers(handle, ServingOptions()) is handle


async def test_hsts_header_is_added_to_every_response() -> None:
    options = ServingOptions(strict_transport_security_directives=("max-age=31536000", "includeSubDomains", "preload"))
    response = await send(options)
    assert response.headers == {
        "strict-transport-security": "max-age=31536000; includeSubDomains; preload",
        "a": "b",
    }


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://shop.example", True),
        ("https://shop.example:8443", True),
        ("https://shop.example.evil", False),
        ("https://evil", False),
        ("", False),
    ],
)
async def test_allowed_origins_get_cors_headers(origin: str, allowed: bool) -> None:
    options = ServingOptions(cors_allowed_origins=("^https://other$", r"//shop\.example(:|$)"))
    response = await send(options, origin=origin)
    added = {"access-control-allow-origin": origin, **CORS} if allowed else {}
    assert response.headers == {**added, "a": "b"}
    before = await send(options, "OPTIONS", origin=origin)
    assert (before.status, before.body) == ((204, b"") if allowed else (200, b"answered"))


@pytest.mark.virtual(seed=3)
async def test_some_responses_close_their_connection() -> None:
    options = ServingOptions(goaway_chance=0.02)
    ended = sum([(await send(options)).headers.get("connection") == "close" for _ in range(5000)])
    assert 60 < ended < 140


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"strict_transport_security_directives": ("max-age",)}, "max-age=SECONDS"),
        ({"strict_transport_security_directives": ("",)}, "max-age=SECONDS"),
        ({"strict_transport_security_directives": ("includesubdomains",)}, "max-age=SECONDS"),
        ({"cors_allowed_origins": ("example.com",)}, "must be tied to the host"),
        ({"cors_allowed_origins": ("//example.com",)}, "must be tied to the host"),
        ({"cors_allowed_origins": ("",)}, "must be tied to the host"),
        ({"cors_allowed_origins": ("//(:",)}, "missing closing )"),
        ({"goaway_chance": 0.03}, "0.02"),
        ({"goaway_chance": -0.1}, "0"),
    ],
)
def test_invalid_flags_are_rejected(flags: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=r"(?s).*") as refusal:
        ServingOptions(**flags)
    assert message in str(refusal.value)
