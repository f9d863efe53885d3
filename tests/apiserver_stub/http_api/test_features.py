"""Versioning: the features and their stages; Limits; Authentication."""

from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS, ServerFeatureOptions
from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.options.parse import FlagError

CONFIGS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("gate", "on"),
    [
        ("CBORServingAndStorage", False),
        ("APIResponseCompression", True),
        ("AllowUnsafeMalformedObjectDeletion", False),
    ],
)
def test_feature_gate_defaults(gate: str, on: bool) -> None:
    """Versioning, rule 3."""
    options = FLAGS.parse([])[ServerFeatureOptions]
    assert {gate.name: enabled for gate, enabled in options.read()}[gate] is on


@pytest.mark.parametrize("said", ["Nonsense=true", "CBORServingAndStorage=perhaps", "CBORServingAndStorage"])
def test_unknown_gates_are_rejected(said: str) -> None:
    """An unknown gate fails the start with an error message."""
    with pytest.raises(FlagError, match="feature-gates"):
        FLAGS.parse([f"--feature-gates={said}"])


async def test_version_is_part_of_the_path(api: Any) -> None:
    """Versioning, rules 1 and 2."""
    assert (await api.get("/api")).tree["versions"] == ["v1"]
    groups = {group["name"]: group["preferredVersion"]["version"] for group in (await api.get("/apis")).tree["groups"]}
    assert (groups["events.k8s.io"], groups["apps"]) == ("v1", "v1")
    assert (await api.get("/version")).tree["minor"].rstrip("+") == "36"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_needs_no_credentials(api: Any, path: str) -> None:
    """Authentication, rule 4."""
    assert (await api.server.handle(Request("GET", path))).status == 200


@pytest.mark.parametrize("path", ["/", "/api", "/livez/ping", "/metrics", "/openapi/v3", CONFIGS])
@pytest.mark.parametrize("header", ["", "Bearer forged", "Basic YWRtaW46YWRtaW4="])
async def test_other_paths_need_credentials(api: Any, path: str, header: str) -> None:
    """Authentication, rule 1: 401 Unauthorized."""
    headers = {"authorization": header} if header else {}
    answer = await api.server.handle(Request("GET", path, (), headers))
    assert answer.status == 401
    assert b"Unauthorized" in answer.body


async def test_certificate_authenticates_a_user(api: Any) -> None:
    """Authentication: an authenticated user may send requests."""
    jane = Certificate("jane", ("dev",))
    assert (await api.server.handle(Request("GET", CONFIGS, certificate=jane))).status == 200
