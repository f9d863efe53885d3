"""RBAC with kubectl, in a cluster whose controllers have only their own permissions."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ClusterUp
from tests.e2e.test_cluster_up import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.needs("kubectl")]
READER = {"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get", "list"]}


def role(*rules: Any) -> dict[str, Any]:
    metadata = {"name": "things", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": list(rules),
    }


def can_i(cluster: ClusterUp, *words: str) -> str:
    """The output of `kubectl auth can-i`; a no is also an exit status."""
    return cluster.ask("auth", "can-i", *words).stdout.strip()


def rules_of(cluster: ClusterUp, name: str) -> Any:
    return json.loads(cluster.kubectl("get", "clusterrole", name, "-o", "json"))["rules"]


def test_auth_can_i(cluster: ClusterUp) -> None:
    cluster.kubectl("create", "namespace", "rbac")
    cluster.kubectl("-n", "rbac", "create", "serviceaccount", "robot")
    cluster.kubectl("-n", "rbac", "create", "rolebinding", "robot", "--clusterrole=edit", "--serviceaccount=rbac:robot")
    robot = ("--as", "system:serviceaccount:rbac:robot")
    assert can_i(cluster, "create", "pods", "-n", "rbac", *robot) == "yes"
    assert can_i(cluster, "create", "pods", "-n", "default", *robot) == "no"
    assert can_i(cluster, "create", "rolebindings", "-n", "rbac", *robot) == "no"
    assert can_i(cluster, "*", "*") == "yes"
    assert can_i(cluster, "get", "/healthz", "--as", "jane", "--as-group", "system:authenticated") == "yes"
    assert can_i(cluster, "get", "/metrics", "--as", "jane", "--as-group", "system:authenticated") == "no"
    listed = can_i(cluster, "--list", "-n", "rbac", *robot)
    pods = next(line for line in listed.splitlines() if line.startswith("pods "))
    assert pods.split("[]")[-1].strip() == "[create delete deletecollection patch update get list watch]"
    refused = cluster.ask("-n", "default", "get", "pods", *robot)
    assert 'User "system:serviceaccount:rbac:robot" cannot list resource "pods" in API group ""' in refused.stderr
    cluster.kubectl("delete", "namespace", "rbac")


def test_auth_reconcile_and_aggregated_roles(cluster: ClusterUp, tmp_path: Path) -> None:
    file = tmp_path / "role.json"

    def reconcile(*rules: Any, flag: str = "") -> Any:
        file.write_text(json.dumps(role(*rules)))
        cluster.kubectl("auth", "reconcile", "-f", str(file), *filter(None, [flag]))
        return rules_of(cluster, "things")

    assert reconcile(READER) == [READER]
    watch = {**READER, "verbs": ["watch"]}
    assert reconcile(watch) == [READER, watch]
    assert reconcile(watch, flag="--remove-extra-permissions") == [watch]
    wait_for(lambda: watch in rules_of(cluster, "admin"))
    cluster.kubectl("delete", "clusterrole", "things")
    wait_for(lambda: watch not in rules_of(cluster, "view"))


def test_controllers_are_never_forbidden(cluster: ClusterUp) -> None:
    cluster.kubectl("create", "namespace", "busy")
    cluster.kubectl("-n", "busy", "create", "service", "clusterip", "s", "--tcp=80:80")
    cluster.kubectl("-n", "busy", "run", "p", "--image=i", "--restart=Never")
    cluster.kubectl("-n", "busy", "create", "deployment", "d", "--image=i")
    cluster.kubectl("-n", "busy", "autoscale", "deployment", "d", "--max=2")
    cluster.kubectl("delete", "namespace", "busy")
    for log in cluster.folder.glob("manager-*.log"):
        refusals = [line for line in log.read_text().splitlines() if "orbidden" in line and " cannot " in line]
        assert refusals == []
