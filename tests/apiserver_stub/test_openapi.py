"""The paths document: what clients look up in it is there."""

from typing import Any

import msgspec
import pytest

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.openapi import ROOT, OpenApi
from controller_manager.api.errors import NotFound

DOCUMENTS = OpenApi(built_in())


def read(path: str) -> Any:
    response = DOCUMENTS.answer(path)
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


def test_the_index_leads_to_every_version() -> None:
    paths = read(ROOT)["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/autoscaling/v2"} <= paths.keys()
    for root, entry in paths.items():
        path, _, tag = entry["serverRelativeURL"].partition("?hash=")
        assert tag
        assert all(served.startswith(f"/{root}/") for served in read(path)["paths"])


def test_a_patch_says_its_kind_and_parameters() -> None:
    path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    item = read(f"{ROOT}/apis/apps/v1")["paths"][path]
    assert item["patch"]["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert [one["name"] for one in item["patch"]["parameters"]] == ["dryRun", "fieldValidation"]
    assert [one["name"] for one in item["parameters"]] == ["namespace", "name"]


def test_only_what_is_served_is_there() -> None:
    paths = read(f"{ROOT}/apis/authentication.k8s.io/v1")["paths"]
    assert [sorted(item) for item in paths.values()] == [["parameters", "post"], ["parameters", "post"]]


@pytest.mark.parametrize("path", ["/api/v2", "/apis/apps", "/apis/apps/v1/deployments"])
def test_other_documents_are_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        DOCUMENTS.answer(f"{ROOT}{path}")
