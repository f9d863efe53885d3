"""Values that need a feature gate which is off."""

import copy
from typing import Any

import pytest

from apiserver_stub.common.flags.features import SELINUX_MOUNT
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.rules.features import POD_SPECS
from apiserver_stub.kinds.validate import validate
from apiserver_stub.kinds.values.trees import put_in

BOTH = (built_in(), built_in(enabled=lambda feature: feature != SELINUX_MOUNT))
ON, OFF = ({f"{kind.plural}.{kind.group}".rstrip("."): kind for kind in one.all()} for one in BOTH)
POLICY = ("securityContext", "seLinuxChangePolicy")


def tree(name: str, policy: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {"name": "one", "namespace": "default"}}
    put_in(found, (*POD_SPECS[name], *POLICY), policy)
    return found


def reasons(kinds: Any, name: str, policy: str, before: str | None = None) -> list[str]:
    """The reasons of causes that name the policy, for a new object or an update of one with the policy `before`."""
    old = None if before is None else tree(name, before)
    causes = validate(kinds[name], copy.deepcopy(tree(name, policy)), old)
    return [cause.reason for cause in causes if cause.field == ".".join((*POD_SPECS[name], *POLICY))]


@pytest.mark.parametrize("name", POD_SPECS)
def test_mount_policy_needs_feature_or_stored_value(name: str) -> None:
    assert reasons(ON, name, "MountOption") == []
    assert reasons(OFF, name, "MountOption") == ["FieldValueNotSupported"]
    assert reasons(OFF, name, "Recursive") == []
    assert reasons(OFF, name, "MountOption", "Recursive") == []
