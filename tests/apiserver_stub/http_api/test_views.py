"""Representations that do not fit the answer are not acceptable."""

from typing import Any

import pytest

from tests.apiserver_stub.api_client import CONFIGS, ApiClient

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
UNKNOWN = "application/json;as=Thing;g=meta.k8s.io;v=v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ASKED = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}


@pytest.mark.parametrize(
    ("method", "url", "accept", "status"),
    [
        ("GET", CONFIGS, PARTIAL, 406),
        ("GET", CONFIGS, PARTIAL_LIST, 200),
        ("GET", f"{CONFIGS}/a", PARTIAL, 200),
        ("GET", f"{CONFIGS}/a", PARTIAL_LIST, 406),
        ("GET", f"{CONFIGS}?watch=1&timeoutSeconds=1", PARTIAL, 200),
        ("PUT", f"{CONFIGS}/a", PARTIAL_LIST, 406),
        ("DELETE", f"{CONFIGS}/a", PARTIAL_LIST, 200),
        ("DELETE", f"{CONFIGS}/none", PARTIAL_LIST, 404),
        ("GET", CONFIGS, UNKNOWN, 406),
        ("GET", f"{CONFIGS}/a", UNKNOWN, 406),
        ("GET", f"{CONFIGS}/a", f"{UNKNOWN},application/json", 200),
        ("GET", f"{CONFIGS}/a", TABLE, 200),
        ("POST", REVIEWS, TABLE, 406),
        ("POST", REVIEWS, f"{TABLE},application/json", 201),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/s/token", TABLE, 406),
    ],
)
async def test_unsuitable_representations_are_not_acceptable(
    api: ApiClient, method: str, url: str, accept: str, status: int
) -> None:
    await api.config("a")
    await api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "s"}})
    body: Any = {"PUT": {"metadata": {"name": "a"}}, "POST": ASKED if url == REVIEWS else {"spec": {}}}.get(method)
    answer = await api.ask(method, url, body, accept=accept)
    assert answer.status == status
    if status == 406:
        assert answer.tree["reason"] == "NotAcceptable"
