"""The processes of a cluster and their flags."""

from pathlib import Path

import pytest

from controller_manager.cluster_up.children import children_of
from controller_manager.cluster_up.options import ClusterOptions

FOLDER = Path("/clusters/one")


def commands(**options: object) -> dict[str, tuple[str, ...]]:
    return {child.name: child.command for child in children_of(ClusterOptions(**options), FOLDER)}


def test_each_process_has_its_port_and_its_log() -> None:
    options = ClusterOptions(managers=2, api_port=7000, manager_port=8000)
    assert [(child.name, child.port, str(child.log)) for child in children_of(options, FOLDER)] == [
        ("apiserver", 7000, "/clusters/one/apiserver.log"),
        ("manager-0", 8000, "/clusters/one/manager-0.log"),
        ("manager-1", 8001, "/clusters/one/manager-1.log"),
    ]


@pytest.mark.parametrize(
    ("options", "there", "absent"),
    [
        ({}, "--controllers=*,scheduler,virtual-node-controller", ""),
        ({"scheduler": False}, "--controllers=*,virtual-node-controller", ""),
        ({"nodes": 0}, "--virtual-nodes=0", ""),
        ({"manager_arg": ("--controllers=job",)}, "--controllers=job", "--virtual-nodes=3"),
        ({}, "--cluster-signing-kubelet-client-cert-file=/clusters/one/client-ca.crt", ""),
        (
            {"manager_arg": ("--cluster-signing-cert-file=mine.crt",)},
            "--cluster-signing-cert-file=mine.crt",
            "--cluster-signing-kubelet-client-cert-file=/clusters/one/client-ca.crt",
        ),
    ],
)
def test_flags_of_managers(options: dict[str, object], there: str, absent: str) -> None:
    command = commands(managers=1, **options)["manager-0"]
    assert there in command
    assert absent not in command


@pytest.mark.parametrize(
    ("options", "there", "absent"),
    [
        ({}, "--authorization-mode=Node,RBAC", "--workers=1"),
        ({"api_workers": 2}, "--workers=2", ""),
        (
            {"apiserver_arg": ("--authorization-mode=AlwaysAllow",)},
            "--authorization-mode=AlwaysAllow",
            "--authorization-mode=Node,RBAC",
        ),
        ({}, "--enable-admission-plugins=NodeRestriction,ServiceAccount", ""),
        ({"managers": 0}, "--enable-admission-plugins=NodeRestriction", ""),
        (
            {"apiserver_arg": ("--disable-admission-plugins=NodeRestriction",)},
            "--disable-admission-plugins=NodeRestriction",
            "--enable-admission-plugins=NodeRestriction,ServiceAccount",
        ),
    ],
)
def test_flags_of_api_server(options: dict[str, object], there: str, absent: str) -> None:
    command = commands(**options)["apiserver"]
    assert there in command
    assert absent not in command
