"""OpenAPI of the built-in kinds, read as by a client."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from apiserver_stub.apis.openapi import OpenApi
from apiserver_stub.kinds.registry import ResourceRegistry, built_in
from controller_manager.common.api.wire import Request, Response

Ask = Callable[..., Response]


@pytest.fixture(scope="session")
def kinds() -> ResourceRegistry:
    """The built-in kinds; tests must not add to them."""
    return built_in()


@pytest.fixture(scope="session")
def ask(kinds: ResourceRegistry) -> Ask:
    """Request a path with headers and query; `of` is another `OpenApi`."""
    shared = OpenApi(kinds)

    def asked(path: str, *, of: OpenApi = shared, query: dict[str, str] | None = None, **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = asyncio.run(of.answer(Request("GET", path, tuple((query or {}).items()), named), path))
        assert response is not None
        return response

    return asked


@pytest.fixture(scope="session")
def read(ask: Ask) -> Callable[[str], Any]:
    """The tree of a document."""

    def reads(path: str) -> Any:
        body = ask(path).body
        assert isinstance(body, bytes)
        return msgspec.json.decode(body)

    return reads


@pytest.fixture(scope="session")
def core(read: Callable[[str], Any]) -> Any:
    """The OpenAPI v3 document of the core version."""
    return read("/openapi/v3/api/v1")
