"""Custom resources with popular programs: kubectl, helm, and the dynamic classes of client libraries."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kr8s.asyncio
import lightkube
import pytest
import yaml
from kr8s.asyncio.objects import new_class
from kubernetes import config, dynamic
from lightkube.generic_resource import create_resources_from_crd, get_generic_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.types import PatchType

from tests.e2e.boat_definition import boat, definition, version

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
Kubectl = Callable[..., str]


@pytest.fixture
def group(namespace: str, kubectl: Kubectl) -> Iterator[str]:
    """A group of the test, for its definition of boats."""
    group = f"{namespace}.example.com"
    yield group
    kubectl("delete", "crd", f"boats.{group}", "--ignore-not-found")


@pytest.fixture
def boats(group: str, kubectl: Kubectl) -> str:
    """The group of a served definition of boats."""
    kubectl("apply", "-f", "-", stdin=definition(group))
    kubectl("wait", "--for=condition=Established", "--timeout=20s", f"crd/boats.{group}")
    return group


@pytest.fixture
def fleet(boats: str, kubectl: Kubectl, namespace: str) -> Kubectl:
    """kubectl in the namespace of one boat, `anna`; resources are called `boats` and `bo` of the test's group."""

    def run(*words: str, **more: Any) -> str:
        shown = [word.replace("boats", f"boats.{boats}").replace("bo/", f"bo.{boats}/") for word in words]
        return kubectl(*shown, "-n", namespace, **more)

    assert run("apply", "-f", "-", stdin=boat(boats, "anna")).endswith(f"boat.{boats}/anna created")
    return run


class TestKubectl:
    def test_get_shows_columns(self, fleet: Kubectl) -> None:
        heads, row = fleet("get", "boats").splitlines()
        assert (heads.split(), row.split()[:2]) == (["NAME", "SIZE", "AGE"], ["anna", "4"])
        heads, row = fleet("get", "bo/anna", "-o", "wide").splitlines()
        assert (heads.split(), row.split()[:3]) == (["NAME", "SIZE", "HOME", "AGE"], ["anna", "4", "Kiel"])
        assert fleet("get", "boats", "--field-selector=spec.home=Kiel", "-o", "name").endswith("/anna")
        assert fleet("get", "boats", "--field-selector=spec.home=Rome", "-o", "name") == ""

    def test_api_resources_and_explain_describe_the_kind(self, boats: str, kubectl: Kubectl) -> None:
        row = kubectl("api-resources", f"--api-group={boats}", "--no-headers").split()
        assert row == ["boats", "bo", f"{boats}/v1", "true", "Boat"]
        assert kubectl("api-resources", "--categories=fleet", "-o", "name", f"--api-group={boats}") == f"boats.{boats}"
        output = kubectl("explain", f"boats.{boats}.spec")
        assert "The boat as she should be." in output
        assert "size\t<integer> -required-" in output
        assert "How many people she takes." in kubectl("explain", f"boats.{boats}.spec.size")

    def test_apply_reports_validation_errors(self, boats: str, kubectl_error: Kubectl, namespace: str) -> None:
        def say(tree: Any) -> str:
            return kubectl_error("apply", "-n", namespace, "-f", "-", stdin=tree)

        assert "more than 2 people" in say(boat(boats, "full", size=2, crew=3))
        assert "spec.size in body should be greater than or equal to 1" in say(boat(boats, "none", size=0))
        assert 'unknown field "spec.wings"' in say(boat(boats, "plane", wings=2))
        assert "spec.size: Required value" in say(boat(boats, "bare") | {"spec": {}})

    def test_apply_again_and_diff(
        self, fleet: Kubectl, boats: str, run: Any, kubectl_error: Kubectl, namespace: str
    ) -> None:
        masts = [{"name": "main", "height": 9}]
        wanted = boat(boats, "anna", size=5, masts=masts)
        code, out, _ = run("diff", "-n", namespace, "-f", "-", stdin=wanted)
        assert (code, "+  size: 5" in out, "-  size: 4" in out) == (1, True, True)
        assert fleet("apply", "-f", "-", stdin=wanted).endswith("configured")
        assert run("diff", "-n", namespace, "-f", "-", stdin=wanted)[0] == 0
        assert fleet("apply", "-f", "-", stdin=wanted).endswith("unchanged")
        moved = boat(boats, "anna", size=5, masts=masts, home="Rome")
        assert "spec.home: Invalid value" in kubectl_error("apply", "-n", namespace, "-f", "-", stdin=moved)

    def test_server_side_apply(self, boats: str, kubectl: Kubectl, kubectl_error: Kubectl, namespace: str) -> None:
        def words(manager: str) -> list[str]:
            return ["apply", "--server-side", f"--field-manager={manager}", "-n", namespace, "-f", "-"]

        kubectl(*words("a"), stdin=boat(boats, "eva", masts=[{"name": "main", "height": 9}]))
        kubectl(*words("b"), stdin=boat(boats, "eva", masts=[{"name": "fore", "height": 5}]))
        error = kubectl_error(*words("b"), stdin=boat(boats, "eva", masts=[{"name": "main", "height": 8}]))
        assert 'conflict with "a": .spec.masts[name="main"].height' in error
        kubectl(*words("a"), stdin=boat(boats, "eva"))
        shown = json.loads(kubectl("get", f"boats.{boats}", "eva", "-n", namespace, "-o", "json"))
        assert shown["spec"]["masts"] == [{"name": "fore", "height": 5}]

    def test_patch_and_scale(self, fleet: Kubectl) -> None:
        fleet("patch", "boats", "anna", "--type=merge", "-p", '{"spec": {"masts": [{"name": "main"}]}}')
        fleet("patch", "boats", "anna", "--type=json", "-p", '[{"op": "add", "path": "/spec/size", "value": 7}]')
        fleet("scale", "boats/anna", "--replicas=6", "--current-replicas=0")
        fleet("label", "boats/anna", "tier=x")
        fleet("annotate", "boats/anna", "note=y")
        shown = json.loads(fleet("get", "boats/anna", "-o", "json"))
        assert shown["spec"] == {"size": 7, "crew": 6, "home": "Kiel", "masts": [{"name": "main"}]}
        assert (shown["metadata"]["generation"], shown["metadata"]["labels"]) == (4, {"tier": "x"})

    def test_wait_for_status_fields(self, fleet: Kubectl, launch: Any, boats: str, namespace: str) -> None:
        where = ("-n", namespace, "--timeout=20s", f"boats.{boats}/anna")
        field = launch("wait", "--for=jsonpath={.status.crew}=2", *where)
        condition = launch("wait", "--for=condition=Afloat", *where)
        status = {"status": {"crew": 2, "conditions": [{"type": "Afloat", "status": "True"}]}, "spec": {"size": 9}}
        fleet("patch", "boats", "anna", "--subresource=status", "--type=merge", "-p", json.dumps(status))
        for child in (field, condition):
            assert child.communicate(timeout=30)[0].strip().endswith("/anna condition met")
        assert fleet("get", "boats/anna", "-o", "jsonpath={.spec.size} {.metadata.generation}") == "4 1"

    def test_delete_of_definition_deletes_its_objects(
        self, fleet: Kubectl, launch: Any, boats: str, namespace: str
    ) -> None:
        gone = launch("wait", "--for=delete", "--timeout=20s", "-n", namespace, f"boats.{boats}/anna")
        fleet("get", "boats")
        assert f'"boats.{boats}" deleted' in fleet("delete", "crd", "boats", "--timeout=20s")
        assert gone.communicate(timeout=30)[0].strip().endswith("/anna condition met")
        assert fleet("api-resources", f"--api-group={boats}", "--no-headers") == ""
        fleet("apply", "-f", "-", stdin=definition(boats))
        fleet("wait", "--for=condition=Established", "--timeout=20s", "crd/boats")
        assert fleet("get", "boats", "-o", "name") == ""

    def test_new_version_is_served(self, fleet: Kubectl, boats: str) -> None:
        new = {**version("v2", storage=False, sails={"type": "integer"}), "selectableFields": []}
        assert fleet("apply", "-f", "-", stdin=definition(boats, version(), new)).endswith("configured")
        fleet("wait", "--for=jsonpath={.spec.versions[1].name}=v2", "--timeout=20s", "crd/boats")
        fleet("apply", "-f", "-", stdin=boat(boats, "eva", api_version="v2"))
        assert json.loads(fleet("get", "boats", "eva", "-o", "json"))["apiVersion"] == f"{boats}/v2"
        assert json.loads(fleet("get", "boat.v1." + boats, "eva", "-o", "json"))["apiVersion"] == f"{boats}/v1"


@pytest.mark.needs("helm")
def test_helm(server: Any, group: str, kubectl: Kubectl, namespace: str, tmp_path: Path) -> None:
    """A chart with a definition and an object of it; the definition outlives the release."""
    chart = tmp_path / "harbour"
    (chart / "crds").mkdir(parents=True)
    (chart / "templates").mkdir()
    (chart / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "harbour", "version": "0.1.0"}))
    (chart / "crds" / "boats.yaml").write_text(yaml.safe_dump(definition(group)))
    tree = yaml.safe_dump(boat(group, "anna", size=99)).replace("99", "{{ .Values.size }}")
    (chart / "templates" / "anna.yaml").write_text(tree)
    command = [sys.executable, str(HERE / "helm_crd_chart.py"), str(server.kubeconfig), namespace, str(chart), group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["sizes"] == [{"anna": 3}, {"anna": 5}, {}]
    assert "spec.size in body should be greater than or equal to 1" in output["bad"]
    assert kubectl("get", "crd", f"boats.{group}", "-o", "name").endswith(f"/boats.{group}")


def test_dynamic_client(server: Any, boats: str, namespace: str, tmp_path: Path) -> None:
    with config.new_client_from_config(config_file=str(server.kubeconfig)) as api:
        found = dynamic.DynamicClient(api, cache_file=str(tmp_path / "cache"))
        resource = found.resources.get(api_version=f"{boats}/v1", kind="Boat")
        made = resource.create(body=boat(boats, "anna"), namespace=namespace)
        assert (made.spec.home, made.spec.crew) == ("Kiel", 0)
        version = made.metadata.resourceVersion
        merge = {"spec": {"size": 6}}
        resource.patch(name="anna", namespace=namespace, body=merge, content_type="application/merge-patch+json")
        applied = resource.server_side_apply(
            body=boat(boats, "anna", size=6, crew=2),
            name="anna",
            namespace=namespace,
            field_manager="tests",
            force_conflicts=True,
        )
        assert (applied.spec.crew, applied.metadata.generation) == (2, 3)
        seen = resource.status.patch(
            name="anna",
            namespace=namespace,
            body={"status": {"selector": "boat=anna", "crew": 1}},
            content_type="application/merge-patch+json",
        )
        assert (seen.status.crew, seen.metadata.generation) == (1, 3)
        scale = resource.scale.get(name="anna", namespace=namespace)
        assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (2, 1, "boat=anna")
        with pytest.raises(dynamic.exceptions.UnprocessibleEntityError, match="more than 6 people"):
            resource.patch(
                name="anna",
                namespace=namespace,
                body={"spec": {"crew": 7}},
                content_type="application/merge-patch+json",
            )
        resource.delete(name="anna", namespace=namespace)
        events = [
            (event["type"], event["object"].spec.size, event["object"].spec.crew)
            for event in resource.watch(namespace=namespace, resource_version=version, timeout=1)
        ]
        last = ("MODIFIED", 6, 2)
        assert events == [("MODIFIED", 6, 0), last, last, ("DELETED", 6, 2)]


def test_lightkube(server: Any, group: str, namespace: str) -> None:
    """The definition is created with its own model, and the class from that."""
    kubeconfig = lightkube.KubeConfig.from_file(str(server.kubeconfig))
    api = lightkube.Client(config=kubeconfig, namespace=namespace, field_manager="lightkube")
    made = api.create(CustomResourceDefinition.from_dict(definition(group)))
    api.wait(CustomResourceDefinition, f"boats.{group}", for_conditions=["Established"])
    (generic,) = create_resources_from_crd(made) or [get_generic_resource(f"{group}/v1", "Boat")]
    api.create(generic(metadata=ObjectMeta(name="anna"), spec={"size": 4}))
    api.patch(generic, "anna", {"spec": {"size": 5}}, patch_type=PatchType.MERGE)
    applied = api.apply(generic(metadata=ObjectMeta(name="eva"), spec={"size": 2, "crew": 1}))
    assert applied.spec == {"size": 2, "crew": 1, "home": "Kiel"}
    assert sorted(one.metadata.name for one in api.list(generic, fields={"spec.home": "Kiel"})) == ["anna", "eva"]
    scale = api.get(generic.Scale, "eva")
    assert scale.spec.replicas == 1
    with pytest.raises(lightkube.ApiError) as refusal:
        api.patch(generic, "eva", {"spec": {"crew": 9}}, patch_type=PatchType.MERGE)
    assert (refusal.value.status.code, refusal.value.status.reason) == (422, "Invalid")
    for kind, item in api.watch(generic, fields={"metadata.name": "anna"}):
        if kind == "DELETED":
            break
        api.delete(generic, item.metadata.name)


@pytest.mark.filterwarnings("ignore:Kubernetes version")
async def test_kr8s(server: Any, boats: str, namespace: str) -> None:
    api = await kr8s.asyncio.api(kubeconfig=str(server.kubeconfig), namespace=namespace)
    boat_class = new_class("Boat", f"{boats}/v1", plural="boats", scalable=True, scalable_spec="crew")
    anna = await boat_class(boat(boats, "anna"), namespace=namespace, api=api)
    await anna.create()
    await anna.label(tier="x")
    await anna.patch({"status": {"crew": 3}}, subresource="status")
    await anna.patch({"spec": {"crew": 3}})
    assert (anna.status.crew, anna.spec.crew, anna.labels) == (3, 3, {"tier": "x"})
    found = [item.name async for item in api.get(f"boats.{boats}", namespace=namespace, label_selector={"tier": "x"})]
    assert found == ["anna"]
    await anna.delete()
    await anna.wait("delete", timeout=20)
    assert not await anna.exists()
