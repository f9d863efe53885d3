"""SELinux labels of pods, and conflicts between them."""

import pytest

from controller_manager.framework import Key
from controllers.selinux_warning.conflicts import Conflict, Use, VolumeUses
from controllers.selinux_warning.controller import use_of
from controllers.selinux_warning.labels import MOUNT_OPTION, RECURSIVE, SecuredPod, conflict
from tests.scenarios.volumes import of_claim, pod

A, B, FOREIGN = Key("default", "a"), Key("default", "b"), Key("other", "c")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("", "", False),
        ("u:r:t:s0", "u:r:t:s0", False),
        ("u:r:t:s0", ":::s0", False),
        (":r:t:s0", "u:::s0", False),
        ("u:r:t:s0", "v:::s0", True),
        ("u:r:t:s0", "u:r:t:s1", True),
        ("u:r:t:s0", "u:r:t:", True),
        ("", ":::s0", True),
        ("", "u:r:t:", False),
        ("u:r:t:s0:c1,c2", "u:r:t:s0:c1,c3", True),
    ],
)
def test_conflicting_selinux_labels(one: str, other: str, expected: bool) -> None:
    assert conflict(one, other) is conflict(other, one) is expected


@pytest.mark.parametrize(
    ("label", "policy", "mounts", "expected"),
    [
        (":::s0", MOUNT_OPTION, True, Use(":::s0", MOUNT_OPTION)),
        (":::s0", RECURSIVE, True, Use("", RECURSIVE)),
        (":::s0", MOUNT_OPTION, False, Use("", RECURSIVE)),
        ("", MOUNT_OPTION, True, Use("", RECURSIVE)),
    ],
)
def test_volume_use_by_label_policy_and_mount(label: str, policy: str, mounts: bool, expected: Use) -> None:
    assert use_of(label, policy, mounts_labelled=mounts) == expected


def test_container_selinux_options_override_those_of_pod() -> None:
    mount = [{"name": "data", "mountPath": "/x"}]
    init = {"name": "i", "image": "i", "volumeMounts": mount, "securityContext": {"seLinuxOptions": {"type": "t"}}}
    options = {"user": "u", "role": "r", "level": "s0"}
    made = pod("p", of_claim("data"), initContainers=[init], securityContext={"seLinuxOptions": options})
    seen = SecuredPod.of(made)
    assert seen.labels() == {"data": {"u:r::s0", "::t:"}}
    assert seen.change_policy == MOUNT_OPTION
    assert SecuredPod.of(pod("q", of_claim("data"))).labels() == {"data": frozenset()}


def test_conflict_is_reported_once_and_ends_with_either_pod() -> None:
    uses, mine, its = VolumeUses(), Use(":::s0", MOUNT_OPTION), Use(":::s1", MOUNT_OPTION)
    assert uses.add("v", "d", A, mine) == []
    found = uses.add("v", "d", B, its)
    assert found == [
        Conflict("SELinuxLabel", B, ":::s1", A, ":::s0"),
        Conflict("SELinuxLabel", A, ":::s0", B, ":::s1"),
    ]
    assert uses.add("v", "d", B, its) == []
    assert uses.conflicts() == set(found)
    assert set(uses.pods_of_driver("d")) == {A, B}
    assert uses.add("v", "d", B, mine) == []
    assert uses.conflicts() == set()
    uses.add("v", "d", B, its)
    uses.remove(A)
    uses.remove(A)
    assert uses.conflicts() == set()
    uses.remove(B)
    assert set(uses.pods_of_driver("d")) == set()


def test_pods_of_other_namespaces_are_not_named() -> None:
    message = Conflict("SELinuxLabel", A, ":::s0", FOREIGN, ":::s1").message
    assert "other" not in message.replace("another", "")
    assert ":::s1" not in message
    assert "b" in Conflict("SELinuxLabel", A, ":::s0", B, ":::s1").message
