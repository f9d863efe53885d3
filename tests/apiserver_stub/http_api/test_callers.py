"""Public paths, unknown tokens, and audit ids."""

from collections.abc import Mapping

import pytest

from controller_manager.common.api.wire import Request, Response
from tests.apiserver_stub.api_client import CONFIGS, ApiClient

PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
NOT_PUBLIC = ["/healthz/log", "/readyz/ping", "/metrics", "/", "/api", "/openapi/v2", "/api/v1/namespaces", "/foo"]


async def _anonymous(
    api: ApiClient, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> Response:
    return await api.server.handle(Request(method, path, (), headers or {}))


@pytest.mark.parametrize("authorization", ["", "Basic YTpi", "Bearer ", "Bearer"])
@pytest.mark.parametrize("path", PUBLIC)
async def test_health_and_version_are_public(api: ApiClient, path: str, authorization: str) -> None:
    headers = {"authorization": authorization} if authorization else {}
    assert (await _anonymous(api, path, headers)).status == 200


async def test_other_paths_are_not_public(api: ApiClient) -> None:
    assert [(await _anonymous(api, path)).status for path in NOT_PUBLIC] == [401] * len(NOT_PUBLIC)
    assert (await _anonymous(api, "/version", method="POST")).status == 403
    assert (await _anonymous(api, "/version", {"impersonate-user": "admin"})).status == 403


@pytest.mark.parametrize("path", [*PUBLIC, *NOT_PUBLIC])
async def test_unknown_token_is_rejected_everywhere(api: ApiClient, path: str) -> None:
    assert (await _anonymous(api, path, {"authorization": "Bearer nobody"})).status == 401


async def test_every_response_has_an_audit_id(api: ApiClient) -> None:
    answers = [
        await api.get(CONFIGS),
        await api.get(f"{CONFIGS}/none"),
        await api.post(CONFIGS, b"{"),
        await api.get(f"{CONFIGS}?watch=1&timeoutSeconds=1&resourceVersion=0"),
        await _anonymous(api, "/healthz"),
        await _anonymous(api, "/metrics"),
        await api.get("/openapi/v3"),
    ]
    found = [answer.headers["audit-id"] for answer in answers]
    assert len(set(found)) == len(answers)
    assert {len(one) for one in found} == {36}


async def test_audit_id_of_caller_is_used(api: ApiClient) -> None:
    assert (await api.get(CONFIGS, audit_id="mine")).headers["audit-id"] == "mine"
    assert (await _anonymous(api, "/metrics", {"audit-id": "mine"})).headers["audit-id"] == "mine"
