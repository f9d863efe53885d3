"""The programs in `examples/` run, and the documents quote them unchanged."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.apps import DEPLOYMENTS
from controller_manager.common.api.core import NODES, PODS, SERVICES, Node
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.framework.cloud_provider import CloudContext
from controller_manager.testing import Cluster, builders

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def example(name: str) -> dict[str, Any]:
    """Return the names that the example `name` defines."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.name))
def test_document_code_blocks_are_taken_from_examples(document: Path) -> None:
    programs = [path.read_text() for path in sorted(EXAMPLES.glob("*.py"))]
    for code in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        assert any(code.strip() in program for program in programs), code


def test_examples_are_all_quoted_by_a_document() -> None:
    texts = "".join(document.read_text() for document in DOCUMENTS)
    missing = [path.name for path in EXAMPLES.glob("*.py") if f"examples/{path.name}" not in texts]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.name))
def test_document_links_lead_to_existing_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.virtual
async def test_pods_run_example_passes() -> None:
    await example("test_pods_run")["test_pods_run"]()


def test_cel_expression_example_evaluates() -> None:
    assert example("cel_expression")["program"].expression.startswith("replicas > 2")


@pytest.mark.virtual
async def test_client_writes_example_applies_and_validates() -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    async with Cluster() as cluster:
        key = Key("default", "web")
        await example("client_writes")["write"](cluster.client, key, labels, spec, builders.pod("a"))
        assert (await cluster.client.get(DEPLOYMENTS, key)).metadata.labels == labels
        assert not (await cluster.client.list(PODS, "default")).items


@pytest.mark.virtual
async def test_team_label_example_labels_warns_and_refuses() -> None:
    plugins = {"TeamLabel": example("team_label")["team_label"]}
    async with Cluster(admission_plugins=plugins) as cluster:
        pod = await cluster.client.create(PODS, builders.pod("a"))
        assert (pod.metadata.labels or {})["team"] == "none"
        with pytest.raises(Forbidden, match="there is no team red"):
            await cluster.client.create(PODS, builders.pod("b", labels={"team": "red"}))


@pytest.mark.virtual
async def test_replicator_example_keeps_the_number_of_pods() -> None:
    code = example("replicator")
    spec = {"containers": [{"name": "a", "image": "b", "workingDir": "/w"}], "shareProcessNamespace": True}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    tree: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "template": template},
    }
    tree["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", specs=code["SPECS"])
        owner = await cluster.client.create(code["SETS"], code["ReplicaSet"].decode(json.dumps(tree).encode()))
        await cluster.settle()
        pods = (await cluster.client.list(PODS, "default")).items
        assert [pod.metadata.name[:4] for pod in pods] == ["web-"] * 3
        made = json.loads(pods[0].raw)["spec"]
        assert (made["shareProcessNamespace"], made["containers"][0]["workingDir"]) == (True, "/w")
        change = replace(owner, spec=replace(owner.spec, replicas=1))
        await cluster.client.update(code["SETS"], change)
        await cluster.advance(60)
        assert len((await cluster.client.list(PODS, "default")).items) == 1


@pytest.mark.virtual
async def test_rack_example_assigns_and_frees_addresses(tmp_path: Path) -> None:
    made: list[Any] = []
    rack, config = example("rack")["Rack"], tmp_path / "addresses.txt"
    config.write_text("192.0.2.7\n")

    def provide(context: CloudContext) -> Any:
        made.append(rack(context))
        return made[0]

    async with Cluster() as cluster:
        flags = ("--leader-elect=false", "--cloud-provider=rack", f"--cloud-config={config}", "--controllers=service")
        await cluster.manage(*flags, cloud_providers={"rack": provide})
        await cluster.client.create(NODES, Node(metadata=ObjectMeta(name="a")))
        services = [builders.service(name, type="LoadBalancer") for name in ("web", "late")]
        await cluster.client.create(SERVICES, services[0])
        await cluster.settle()
        await cluster.client.create(SERVICES, services[1])
        await cluster.settle()
        key, late = Key("default", "web"), Key("default", "late")
        assert (await cluster.client.get(SERVICES, key)).status.load_balancer.ingress[0].ip == "192.0.2.7"
        assert [one["nodes"] for one in made[0].load_balancers.made.values()] == [["a"]]
        await cluster.client.delete(SERVICES, key)
        await cluster.advance(30)
        assert (await cluster.client.get(SERVICES, late)).status.load_balancer.ingress[0].ip == "192.0.2.7"


@pytest.mark.virtual
async def test_greeter_example_writes_its_annotation() -> None:
    specs = example("greeter")["SPECS"]
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--greeting=hi", specs=specs)
        await cluster.client.create(PODS, builders.pod("a"))
        await cluster.settle()
        found = await cluster.client.get(PODS, Key("default", "a"))
        assert (found.metadata.annotations or {})["greeting"] == "hi"
