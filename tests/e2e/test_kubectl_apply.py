"""kubectl apply, edit, patch, replace: an object is created, applied again, and changed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]

# kubectl sends a patch for these on every apply, because the server's defaults are in lists or maps that are
# replaced as a whole; the patch must change nothing.
PATCHED_ANYWAY = {
    "secret/book-keys",
    "deployment.apps/front",
    "poddisruptionbudget.policy/front",
    "statefulset.apps/quorum",
    "limitrange/sizes",
    "endpoints/outside",
    "endpointslice.discovery.k8s.io/outside-1",
}

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {"app": "web", "old": "label"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "web",
                        "image": "web:1",
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    },
                    {"name": "log", "image": "log:1"},
                ]
            },
        },
    },
}


@pytest.fixture
def web(kubectl: Kubectl, namespace: str) -> str:
    """A namespace with the deployment `web`."""
    kubectl("apply", "-n", namespace, "-f", "-", "--validate=false", stdin=DEPLOYMENT)
    return namespace


@pytest.fixture
def field(kubectl: Kubectl) -> Callable[..., str]:
    """A field of the deployment `web`."""

    def read(namespace: str, path: str) -> str:
        return kubectl("get", "deployment", "web", "-n", namespace, "-o", f"jsonpath={{{path}}}")

    return read


def revisions(kubectl: Kubectl, file: Path) -> list[str]:
    found = json.loads(kubectl("get", "-f", str(file), "-o", "json"))
    return [item["metadata"]["resourceVersion"] for item in found["items"]]


def test_every_manifest_is_created(manifests: dict[Path, str], documents: Any) -> None:
    for file, said in manifests.items():
        lines = said.splitlines()
        assert len(lines) == len(documents(file))
        assert all(re.fullmatch(r"[a-z0-9.]+/\S+ created", line) for line in lines), said


def test_repeated_apply_changes_nothing(kubectl: Kubectl, manifests: dict[Path, str]) -> None:
    for file in manifests:
        before = revisions(kubectl, file)
        said = kubectl("apply", "--validate=false", "-f", str(file)).splitlines()
        changed = {line.split()[0] for line in said if not line.endswith(" unchanged")}
        assert changed <= PATCHED_ANYWAY
        assert revisions(kubectl, file) == before


def test_written_objects_are_read_back(kubectl: Kubectl, manifests: dict[Path, str], documents: Any) -> None:
    for file in manifests:
        found = yaml.safe_load(kubectl("get", "-f", str(file), "-o", "yaml"))["items"]
        for wanted, have in zip(documents(file), found, strict=True):
            wanted.pop("stringData", None)  # it can be written, but not read
            assert_within(wanted, have)


def assert_within(wanted: Any, found: Any, path: str = "") -> None:
    """Assert that all given values remain; the server may add defaults in maps and list items."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{path}.{key}"
            assert_within(value, found[key], f"{path}.{key}")
    elif isinstance(wanted, list):
        assert len(wanted) == len(found), path
        for position, value in enumerate(wanted):
            assert_within(value, found[position], f"{path}[{position}]")
    else:
        assert wanted == found, path


def test_apply_changes_and_removes_fields(kubectl: Kubectl, web: str, field: Kubectl) -> None:
    wanted = json.loads(json.dumps(DEPLOYMENT))
    del wanted["metadata"]["labels"]["old"]
    kubectl("scale", "deployment/web", "-n", web, "--replicas=5")
    del wanted["spec"]["replicas"]
    web_container = wanted["spec"]["template"]["spec"]["containers"][0]
    web_container |= {"image": "web:2", "env": [{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]}
    wanted["spec"]["template"]["spec"]["containers"].pop()
    said = kubectl("apply", "-n", web, "-f", "-", "--validate=false", stdin=wanted)
    assert said == "deployment.apps/web configured"
    assert json.loads(field(web, ".metadata.labels")) == {"app": "web"}
    assert field(web, ".spec.template.spec.containers[*].image") == "web:2"
    assert field(web, ".spec.template.spec.containers[0].env[*].name") == "B C"
    # a field left out is removed, and its default returns
    assert field(web, ".spec.replicas") == "1"
    assert field(web, ".metadata.generation") == "3"


def test_apply_without_last_applied_keeps_other_fields(kubectl: Kubectl, web: str, field: Kubectl) -> None:
    kubectl("annotate", "deployment", "web", "-n", web, "someone=else")
    kubectl("patch", "deployment", "web", "-n", web, "--type=merge", "-p", '{"spec":{"paused":true}}')
    kubectl("apply", "-n", web, "-f", "-", "--validate=false", stdin=DEPLOYMENT)
    assert field(web, ".spec.paused") == "true"
    assert field(web, ".metadata.annotations.someone") == "else"


def test_apply_rejects_immutable_fields(web: str, kubectl_error: Kubectl, field: Kubectl) -> None:
    wanted = json.loads(json.dumps(DEPLOYMENT))
    wanted["spec"]["selector"]["matchLabels"] = {"app": "other"}
    wanted["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    before = field(web, ".metadata.resourceVersion")
    said = kubectl_error("apply", "-n", web, "-f", "-", "--validate=false", stdin=wanted)
    assert said.startswith('The Deployment "web" is invalid: spec.selector: Invalid value: ')
    assert said.endswith("field is immutable")
    assert field(web, ".metadata.resourceVersion") == before


def test_strategic_patches_merge_containers_by_name(kubectl: Kubectl, web: str, field: Kubectl) -> None:
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "log", "image": "log:2"}]}}}}
    assert kubectl("patch", "deployment", "web", "-n", web, "-p", json.dumps(patch)) == "deployment.apps/web patched"
    assert field(web, ".spec.template.spec.containers[*].image") == "web:1 log:2"
    said = kubectl("patch", "deployment", "web", "-n", web, "-p", json.dumps(patch))
    assert said == "deployment.apps/web patched (no change)"
    gone = {"spec": {"template": {"spec": {"containers": [{"name": "log", "$patch": "delete"}]}}}}
    kubectl("patch", "deployment", "web", "-n", web, "-p", json.dumps(gone))
    assert field(web, ".spec.template.spec.containers[*].name") == "web"


def test_merge_patches_replace_lists(kubectl: Kubectl, web: str, field: Kubectl) -> None:
    patch = {
        "metadata": {"labels": {"old": None}},
        "spec": {"template": {"spec": {"containers": [{"name": "x", "image": "x"}]}}},
    }
    kubectl("patch", "deployment", "web", "-n", web, "--type=merge", "-p", json.dumps(patch))
    assert field(web, ".spec.template.spec.containers[*].name") == "x"
    assert field(web, ".metadata.labels") == '{"app":"web"}'


def test_json_patch_test_is_checked_first(kubectl: Kubectl, kubectl_error: Kubectl, web: str, field: Kubectl) -> None:
    change = {"op": "replace", "path": "/spec/replicas", "value": 4}
    wrong = [{"op": "test", "path": "/spec/replicas", "value": 3}, change]
    said = kubectl_error("patch", "deployment", "web", "-n", web, "--type=json", "-p", json.dumps(wrong))
    assert said.startswith("The request is invalid: ")
    assert field(web, ".spec.replicas") == "2"
    right = [{"op": "test", "path": "/spec/replicas", "value": 2}, change]
    kubectl("patch", "deployment", "web", "-n", web, "--type=json", "-p", json.dumps(right))
    assert field(web, ".spec.replicas") == "4"


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ('"x"', "The request is invalid: patch: Invalid value: "),
        ("-1", 'The Deployment "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'),
    ],
)
def test_patch_with_wrong_value_is_rejected(
    kubectl_error: Kubectl, web: str, field: Kubectl, replicas: str, said: str
) -> None:
    patch = f'{{"spec":{{"replicas":{replicas}}}}}'
    complaint = kubectl_error("patch", "deployment", "web", "-n", web, "--type=merge", "-p", patch)
    assert complaint.startswith(said)
    assert field(web, ".spec.replicas") == "2"


def test_status_is_patched_separately(kubectl: Kubectl, web: str, field: Kubectl) -> None:
    both = '{"spec":{"replicas":9},"status":{"replicas":2,"readyReplicas":1,"updatedReplicas":2,"availableReplicas":1}}'
    kubectl("patch", "deployment", "web", "-n", web, "--subresource=status", "--type=merge", "-p", both)
    cells = kubectl("get", "deployment", "web", "-n", web, "--no-headers").split()
    assert cells[:4] == ["web", "1/2", "2", "1"]
    kubectl("patch", "deployment", "web", "-n", web, "--type=merge", "-p", '{"status":{"readyReplicas":7}}')
    assert field(web, ".status.readyReplicas") == "1"
    assert field(web, ".metadata.generation") == "1"


def test_edit_with_script(kubectl: Kubectl, kubectl_error: Kubectl, web: str, field: Kubectl) -> None:
    said = kubectl("edit", "deployment", "web", "-n", web, editor="sed -i s/web:1/web:3/")
    assert said == "deployment.apps/web edited"
    assert field(web, ".spec.template.spec.containers[0].image") == "web:3"
    assert kubectl("edit", "deployment", "web", "-n", web, editor="true") == ""
    # kubectl opens the editor again with the error in the file, and stops when nothing changes any more
    wrong = """sh -c 'grep -q "replicas: -2" $0 || sed -i "s/replicas: 2/replicas: -2/" $0'"""
    assert "is invalid" in kubectl_error("edit", "deployment", "web", "-n", web, editor=wrong)
    assert field(web, ".spec.replicas") == "2"


def test_replace_needs_the_latest_version(kubectl: Kubectl, kubectl_error: Kubectl, web: str, field: Kubectl) -> None:
    seen = json.loads(kubectl("get", "deployment", "web", "-n", web, "-o", "json"))
    seen["spec"]["replicas"] = 3
    assert kubectl("replace", "-f", "-", "--validate=false", stdin=seen) == "deployment.apps/web replaced"
    seen["spec"]["replicas"] = 8
    said = kubectl_error("replace", "-f", "-", "--validate=false", stdin=seen)
    assert said.startswith("Error from server (Conflict): ")
    assert said.endswith(
        'Operation cannot be fulfilled on deployments.apps "web": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert field(web, ".spec.replicas") == "3"
    uid = field(web, ".metadata.uid")
    said = kubectl("replace", "--force", "-f", "-", "--validate=false", "--grace-period=0", stdin=seen)
    assert said.splitlines()[-1] == "deployment.apps/web replaced"
    assert field(web, ".metadata.uid") != uid


def test_dry_run_changes_nothing(kubectl: Kubectl, web: str, field: Kubectl) -> None:
    wanted = json.loads(json.dumps(DEPLOYMENT))
    wanted["spec"]["replicas"] = 6
    before = field(web, ".metadata.resourceVersion")
    said = kubectl("apply", "-n", web, "-f", "-", "--validate=false", "--dry-run=server", stdin=wanted)
    assert said == "deployment.apps/web configured (server dry run)"
    assert kubectl("delete", "deployment", "web", "-n", web, "--dry-run=server").endswith("(server dry run)")
    assert field(web, ".metadata.resourceVersion") == before


def test_diff_shows_what_apply_would_change(kubectl: Kubectl, run: Any, web: str) -> None:
    wanted = json.loads(json.dumps(DEPLOYMENT))
    wanted["spec"]["replicas"] = 6
    code, out, _ = run("diff", "-n", web, "-f", "-", stdin=wanted)
    assert code == 1
    assert "-  replicas: 2\n+  replicas: 6" in out
    assert kubectl("diff", "-n", web, "-f", "-", stdin=DEPLOYMENT) == ""
