"""Versioning: the features and their stages."""

from typing import Any

import pytest

from apiserver_stub.common.flags import FLAGS, ServerFeatureOptions
from controller_manager.common.options.parse import FlagError


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
