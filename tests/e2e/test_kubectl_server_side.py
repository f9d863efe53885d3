"""kubectl apply --server-side: owners, conflicts, and migration from client-side apply."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import MANIFESTS

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]
Tree = dict[str, Any]

WEB: Tree = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]},
                    {"name": "log", "image": "log:1"},
                ]
            },
        },
    },
}
IMAGE = '.spec.template.spec.containers[name="web"].image'


def web(replicas: int | None = 2, image: str = "web:1") -> Tree:
    tree = copy.deepcopy(WEB)
    tree["spec"]["replicas"] = replicas
    if replicas is None:
        del tree["spec"]["replicas"]
    tree["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return tree


@pytest.fixture
def apply(kubectl: Kubectl, namespace: str) -> Kubectl:
    """Apply an object on the server side; return kubectl's output."""
    return lambda tree, *more: kubectl("apply", "--server-side", "-n", namespace, "-f", "-", *more, stdin=tree)


@pytest.fixture
def owners(kubectl: Kubectl, namespace: str) -> Callable[[], dict[tuple[str, str], Tree]]:
    """The fields of each manager and operation."""

    def read() -> dict[tuple[str, str], Tree]:
        shown = kubectl("get", "deployment", "web", "-n", namespace, "--show-managed-fields", "-o", "json")
        entries = json.loads(shown)["metadata"]["managedFields"]
        return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}

    return read


def test_repeated_apply_and_changes(apply, owners, kubectl, namespace) -> None:
    assert apply(WEB) == "deployment.apps/web serverside-applied"
    version = ("get", "deployment", "web", "-n", namespace, "-o", "jsonpath={.metadata.resourceVersion}")
    before = kubectl(*version)
    apply(WEB)
    assert kubectl(*version) == before
    less = web(None)
    less["spec"]["template"]["spec"]["containers"].pop()
    apply(less)
    left = json.loads(kubectl("get", "deployment", "web", "-n", namespace, "-o", "json"))["spec"]
    assert (left["replicas"], [c["name"] for c in left["template"]["spec"]["containers"]]) == (1, ["web"])
    assert owners().keys() == {("kubectl", "Apply")}


def test_conflicts_are_reported_and_can_be_forced(apply, owners, kubectl_error, kubectl, namespace) -> None:
    apply(WEB)
    kubectl("scale", "deployment/web", "-n", namespace, "--replicas=4")
    kubectl("set", "image", "deployment/web", "-n", namespace, "web=web:9")
    error = kubectl_error("apply", "--server-side", "-n", namespace, "-f", "-", stdin=web(2, "web:2"))
    assert error.startswith("error: Apply failed with 2 conflicts: ")
    assert 'conflicts with "kubectl" with subresource "scale" using apps/v1:\n- .spec.replicas\n' in error
    assert f'conflicts with "kubectl-set" using apps/v1:\n- {IMAGE}\n' in error
    apply(web(2, "web:2"), "--force-conflicts")
    assert owners().keys() == {("kubectl", "Apply")}


def test_managers_share_equal_fields(apply, owners, kubectl_error, namespace) -> None:
    apply(WEB)
    apply(WEB, "--field-manager=other")
    found = owners()
    assert found["kubectl", "Apply"] == found["other", "Apply"]
    apply(web(None), "--field-manager=other")
    error = kubectl_error("apply", "--server-side", "-n", namespace, "--field-manager=other", "-f", "-", stdin=web(3))
    assert error.startswith('error: Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas')


def test_client_side_applied_fields_are_migrated(apply, owners, kubectl, namespace) -> None:
    """kubectl migrates its own managed fields; the annotation is updated for users who go back."""
    kubectl("apply", "-n", namespace, "-f", "-", stdin=WEB)
    assert owners().keys() == {("kubectl-client-side-apply", "Update")}
    apply(web(3, "web:2"))
    assert owners().keys() == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")}
    last = yaml.safe_load(kubectl("apply", "view-last-applied", "deployment/web", "-n", namespace))
    assert last["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
    kubectl("apply", "-n", namespace, "-f", "-", stdin=web(3, "web:3"))
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    assert kubectl("get", "deployment", "web", "-n", namespace, "-o", image) == "web:3"


def test_diff_shows_changes(apply, run, kubectl, namespace) -> None:
    apply(WEB)
    command = ("diff", "--server-side", "-n", namespace, "-f", "-")
    assert run(*command, stdin=WEB)[:2] == (0, "")
    code, shown, _ = run(*command, stdin=web(5))
    assert (code, "-  replicas: 2" in shown, "+  replicas: 5" in shown) == (1, True, True)
    kubectl("apply", "--server-side", "--dry-run=server", "-n", namespace, "-f", "-", stdin=web(5))
    assert kubectl("get", "deployment", "web", "-n", namespace, "-o", "jsonpath={.spec.replicas}") == "2"


def test_managed_fields_are_shown_on_request(apply, kubectl, namespace) -> None:
    apply(WEB)
    show = ("get", "deployment", "web", "-n", namespace, "-o", "yaml")
    assert "managedFields" not in yaml.safe_load(kubectl(*show))["metadata"]
    (entry,) = yaml.safe_load(kubectl(*show, "--show-managed-fields"))["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsType"]) == ("kubectl", "Apply", "FieldsV1")


def test_unknown_field_is_rejected(kubectl_error, namespace) -> None:
    tree = web()
    tree["spec"]["replicaz"] = 3
    error = kubectl_error("apply", "--server-side", "-n", namespace, "-f", "-", stdin=tree)
    assert ".spec.replicaz: field not declared in schema" in error


@pytest.mark.since(32)
def test_status_can_be_applied(apply, kubectl, owners, namespace) -> None:
    apply(WEB)
    status = {**web(9), "status": {"replicas": 2}}
    apply(status, "--subresource=status", "--field-manager=agent")
    shown = json.loads(kubectl("get", "deployment", "web", "-n", namespace, "-o", "json"))
    assert (shown["spec"]["replicas"], shown["status"]["replicas"]) == (2, 2)
    assert owners()["agent", "Apply"] == {"f:status": {"f:replicas": {}}}


def test_many_kinds_can_be_applied_twice(kubectl, own_server, documents) -> None:
    """Every kind of the manifests is applied on the server side; in the end nothing changes.

    Fields applied with a name alone have no owner; the second apply reports them as before-first-apply.
    """
    here = f"--kubeconfig={own_server.kubeconfig}"
    for file in sorted(MANIFESTS.glob("*.yaml")):
        command = (here, "apply", "--server-side", "--force-conflicts", "--field-manager=many", "-f", str(file))
        said = kubectl(*command)
        assert len(said.splitlines()) == len(documents(file))
        kubectl(*command)
        versions = (here, "get", "-f", str(file), "-o", "jsonpath={range .items[*]}{.metadata.resourceVersion} {end}")
        before = kubectl(*versions)
        kubectl(*command)
        assert kubectl(*versions) == before
