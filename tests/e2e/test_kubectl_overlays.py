"""kubectl with many objects at once: overlays, pruning and apply sets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]

BASE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]},
        },
    },
}


@pytest.fixture
def overlay(tmp_path: Path, namespace: str) -> Path:
    """A kustomization over a base: prefix, label, patch, and a ConfigMap whose name follows its content."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "web.json").write_text(json.dumps(BASE))
    (tmp_path / "base" / "kustomization.yaml").write_text("resources: [web.json]")
    over = {
        "resources": ["../base"],
        "namePrefix": "prod-",
        "namespace": namespace,
        "labels": [{"pairs": {"env": "prod"}, "includeSelectors": True}],
        "configMapGenerator": [{"name": "settings", "literals": ["a=b"]}],
        "patches": [
            {"target": {"kind": "Deployment"}, "patch": '[{"op": "add", "path": "/spec/replicas", "value": 3}]'}
        ],
    }
    (tmp_path / "over").mkdir()
    (tmp_path / "over" / "kustomization.yaml").write_text(json.dumps(over))
    return tmp_path / "over"


@pytest.fixture
def parts(tmp_path: Path, namespace: str) -> Callable[..., tuple[str, ...]]:
    """Arguments that apply a folder of the named ConfigMaps."""

    def write(*names: str) -> tuple[str, ...]:
        folder = tmp_path / "-".join(names)
        folder.mkdir()
        for name in names:
            metadata = {"name": name, "labels": {"set": "one"}}
            tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            (folder / f"{name}.json").write_text(json.dumps(tree))
        return ("apply", "-n", namespace, "-f", str(folder))

    return write


def test_overlay_is_applied_shown_and_deleted(kubectl: Kubectl, run: Any, namespace: str, overlay: Path) -> None:
    first = kubectl("apply", "-k", str(overlay)).splitlines()
    assert [line.split()[1] for line in first] == ["created", "created"]
    assert all(line.endswith(" unchanged") for line in kubectl("apply", "-k", str(overlay)).splitlines())
    web = json.loads(kubectl("get", "deployment", "prod-web", "-n", namespace, "-o", "json"))
    assert (web["spec"]["replicas"], web["spec"]["selector"]["matchLabels"]) == (3, {"app": "web", "env": "prod"})
    assert run("diff", "-k", str(overlay))[:2] == (0, "")
    kubectl("scale", "deployment/prod-web", "-n", namespace, "--replicas=5")
    code, shown, _ = run("diff", "-k", str(overlay))
    assert (code, "-  replicas: 5\n+  replicas: 3" in shown) == (1, True)
    assert len(kubectl("delete", "-k", str(overlay)).splitlines()) == 2
    assert kubectl("get", "deployments,configmaps", "-n", namespace) == ""


def test_objects_with_label_are_pruned(kubectl: Kubectl, namespace: str, parts: Any) -> None:
    kubectl("create", "configmap", "stranger", "-n", namespace)
    kubectl("label", "configmap", "stranger", "-n", namespace, "set=one")
    kubectl(*parts("a", "b", "c"))
    fewer = (*parts("a", "b"), "--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap")
    assert "configmap/c pruned (server dry run)" in kubectl(*fewer, "--dry-run=server").splitlines()
    assert "configmap/c pruned" in kubectl(*fewer).splitlines()
    left = kubectl("get", "configmaps", "-n", namespace, "-o", "name").splitlines()
    assert left == ["configmap/a", "configmap/b", "configmap/stranger"]


@pytest.mark.parametrize("side", ["--server-side=true", "--server-side=false"])
def test_members_of_an_apply_set_are_pruned(kubectl: Kubectl, namespace: str, parts: Any, side: str) -> None:
    """KEP-3659: the set is a Secret with the kinds of its members; they refer to it with a label."""
    a_set = ("--prune", "--applyset=mine", side)
    kubectl(*parts("a", "b"), *a_set)
    metadata = json.loads(kubectl("get", "secret", "mine", "-n", namespace, "-o", "json"))["metadata"]
    contents = [value for name, value in metadata["annotations"].items() if "/contains-group-" in name]
    assert contents in (["ConfigMap"], ["configmaps"])  # newer and older versions of kubectl
    own = "applyset.kubernetes.io/part-of=" + metadata["labels"]["applyset.kubernetes.io/id"]
    members = ("get", "configmaps", "-n", namespace, "-l", own, "-o", "name")
    assert kubectl(*members).splitlines() == ["configmap/a", "configmap/b"]
    assert "configmap/b pruned" in kubectl(*parts("a"), *a_set).splitlines()
    assert kubectl(*members) == "configmap/a"


def test_delete_several_kinds_by_fields_and_labels(kubectl: Kubectl, namespace: str) -> None:
    for name in ("a", "b"):
        kubectl("create", "configmap", name, "-n", namespace)
        kubectl("create", "secret", "generic", name, "-n", namespace)
    kubectl("label", "configmaps,secrets", "--all", "-n", namespace, "of=test")
    kubectl("delete", "configmaps", "-n", namespace, "--field-selector=metadata.name=a")
    both = ("configmaps,secrets", "-n", namespace)
    assert kubectl("get", *both, "-o", "name").splitlines() == ["configmap/b", "secret/a", "secret/b"]
    assert len(kubectl("delete", *both, "-l", "of=test", "--dry-run=server").splitlines()) == 3
    assert len(kubectl("delete", *both, "-l", "of=test").splitlines()) == 3
    assert kubectl("get", *both) == ""


@pytest.mark.since(31)
def test_wait_for_creation(kubectl: Kubectl, launch: Any, namespace: str) -> None:
    waiting = launch("wait", "configmap/late", "-n", namespace, "--for=create", "--timeout=20s")
    kubectl("create", "configmap", "late", "-n", namespace)
    assert waiting.communicate(timeout=20) == ("configmap/late condition met\n", "")


def test_watch_of_whole_objects(kubectl: Kubectl, launch: Any, namespace: str) -> None:
    """Unless a table is requested, the server sends the objects."""
    kubectl("create", "configmap", "a", "-n", namespace)
    form = "-o=jsonpath={.type} {.object.metadata.labels};"
    watching = launch("get", "configmaps", "-n", namespace, "-w", "--output-watch-events", form)
    assert watching.stdout.read(len("ADDED ;")) == "ADDED ;"
    kubectl("label", "configmap", "a", "-n", namespace, "x=y")
    kubectl("delete", "configmap", "a", "-n", namespace)
    then = 'MODIFIED {"x":"y"};DELETED {"x":"y"};'
    assert watching.stdout.read(len(then)) == then
    watching.terminate()
    watching.communicate()
