"""The programs in `examples/` run, and the documents quote them unchanged."""

import ast
import asyncio
import json
import re
import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.apiextensions import DEFINITIONS
from controller_manager.common.api.core import NodeSpec
from controller_manager.common.api.errors import Forbidden
from controller_manager.common.api.wire import Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.framework import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
    ConfigError,
    Informers,
    Key,
    LabelSelector,
    Node,
    ObjectMeta,
)
from controller_manager.framework.cloud_provider import CloudContext
from controller_manager.testing import Cluster, builders
from controller_manager.testing.recording import RecordedResource, RecordingWriter

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


TESTS = ("test_pods_run", "test_kit")


def async_tests_of(name: str) -> list[str]:
    """Return the names of the async tests of an example."""
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    return [one.name for one in tree.body if isinstance(one, ast.AsyncFunctionDef) and one.name.startswith("test_")]


def example(name: str) -> dict[str, Any]:
    """Return the names that the example `name` defines."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.name))
def test_document_code_blocks_are_taken_from_examples_or_run(document: Path) -> None:
    programs = [path.read_text() for path in sorted(EXAMPLES.glob("*.py"))]
    for code in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        if not any(code.strip() in program for program in programs):
            exec(compile(code, str(document), "exec"), {})


def test_examples_are_all_quoted_by_a_document() -> None:
    texts = "".join(document.read_text() for document in DOCUMENTS)
    missing = [path.name for path in EXAMPLES.glob("*.py") if f"examples/{path.name}" not in texts]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.name))
def test_document_links_lead_to_existing_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.virtual
@pytest.mark.parametrize(("file", "test"), [(file, test) for file in TESTS for test in async_tests_of(file)])
async def test_async_tests_of_examples_pass(file: str, test: str) -> None:
    await example(file)[test]()


def test_example_of_run_passes() -> None:
    example("test_kit")["test_run_needs_no_pytest_and_reports_a_deadlock"]()


@pytest.mark.virtual
async def test_recording_of_the_kit_example_is_compared(tmp_path: Path) -> None:
    web = json.loads(builders.deployment("web", replicas=0).encode())
    web["metadata"]["resourceVersion"] = "5"
    path = tmp_path / "recording"
    resources = [RecordedResource("apps", "v1", "deployments"), RecordedResource("apps", "v1", "replicasets")]
    with RecordingWriter(path, datetime(2026, 1, 1, tzinfo=UTC), resources, ()) as recording:
        recording.add(1, "ADDED", resources[0], web)
        recording.add(60, "DELETED", resources[0], {**web, "metadata": {**web["metadata"], "resourceVersion": "6"}})
    ours, recorded = await example("test_kit")["compare"](path, "--controllers=deployment-controller")
    assert len(ours) == 1
    assert "create" in ours[0]
    assert recorded == []


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


@pytest.mark.virtual
async def test_client_reads_example_pages_counts_and_watches() -> None:
    code = example("client_reads")
    async with Cluster() as cluster:
        for name in ("a", "b"):
            await cluster.client.create(PODS, builders.pod(name, labels={"app": name}))
        assert [pod.metadata.name async for pod in code["pods_of"](cluster.client, "default", "app in (a,c)")] == ["a"]
        assert await code["count"](cluster.client, PODS, LabelSelector.parse("app")) == 2
        waiting = asyncio.ensure_future(code["first_new_pod"](cluster.client, "default"))
        await cluster.sleep(1)
        await cluster.client.create(PODS, builders.pod("c"))
        assert await waiting == Key("default", "c")
        assert await code["namespace_or_none"](cluster.client, "absent") is None


@pytest.mark.virtual
async def test_inventory_example_describes_each_kind() -> None:
    code = example("inventory")
    async with Cluster(nodes=1) as cluster:
        await cluster.client.create(DEPLOYMENTS, builders.deployment("web", replicas=1))
        await cluster.client.create(SERVICES, builders.service("web", {"app": "web"}))
        await cluster.settle()
        lines = [line async for line in code["inventory"](cluster.client, "default")]
    kinds = {line.split(" ")[0] for line in lines}
    assert {"Pod", "Deployment", "Service", "Endpoints", "EndpointSlice", "ConfigMap", "Event", "Node"} <= kinds
    assert "Deployment web: 1 of 1 pods are ready" in lines
    assert [code["describe"](resource.type()) for resource in code["KINDS"]].count("") == 1  # a namespace has no phase


@pytest.mark.virtual
async def test_website_example_stores_pages_and_sets_conditions() -> None:
    code = example("website")
    names = {"plural": "websites", "kind": "Website", "listKind": "WebsiteList", "singular": "website"}
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": open_object, "status": open_object}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    definition = {"spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}}
    websites, key = code["WEBSITES"], Key("default", "a")
    site = code["Website"](metadata=ObjectMeta(name="a", namespace="default"), spec=code["WebsiteSpec"](text="hi"))

    def condition(found: Any, kind: str) -> str:
        return next(one.status for one in found.status.conditions if one.type == kind)

    async with Cluster() as cluster:
        await cluster.client.apply(DEFINITIONS, Key("", "websites.example.com"), definition, "test")
        await cluster.sleep(1)
        await cluster.manage("--leader-elect=false", specs=code["SPECS"])
        site = await cluster.client.create(websites, site)
        await cluster.settle()
        assert (await cluster.client.get(CONFIG_MAPS, key)).data == {"index.html": "hi"}
        assert condition(await cluster.client.get(websites, key), "Served") == "False"
        pod = await cluster.client.create(PODS, builders.pod("p", labels={"website": "a"}))
        ready = builders.pod("p", ip="10.0.0.1")
        await cluster.client.update(PODS, replace(pod, status=ready.status), subresource="status")
        await cluster.settle()
        found = await cluster.client.get(websites, key)
        assert (condition(found, "Stored"), condition(found, "Served")) == ("True", "True")
        assert condition(code["paused"](found, "Test"), "Paused") == "True"


@pytest.mark.virtual
async def test_census_example_counts_in_each_period(tmp_path: Path) -> None:
    code = example("census")
    async with Cluster() as cluster:
        await cluster.client.create(NODES, Node(metadata=ObjectMeta(name="a")))
        await cluster.client.create(PODS, builders.pod("p"))
        flags = ("--leader-elect=false", "--period=5m", "--largest-manifest=1Ki", "--node-labels=room=1,rack=2")
        flags += ("--authorization-always-allow-paths=/metrics",)
        replica = await cluster.manage(*flags, specs=code["SPECS"])
        await cluster.sleep(720)
        page = await replica.manager.pages.handle(Request("GET", "/metrics"))
        assert isinstance(page.body, bytes)
        text = page.body.decode()
        assert 'census_counts_total{namespace="default"} 3' in text
        assert 'census_pods{namespace="default"} 1' in text
        assert 'census_counts_total{namespace="kube-system"}' not in text
        assert (await cluster.client.get(NODES, Key("", "a"))).metadata.labels == {"room": "1", "rack": "2"}
    with pytest.raises(ConfigError, match="no such file"):
        code["check"](code["CensusOptions"](census_file=str(tmp_path / "absent")))
    assert code["is_source"](code["Census"].__new__(code["Census"]))


@pytest.mark.virtual
async def test_history_example_numbers_templates() -> None:
    record = example("history")["record"]
    async with Cluster() as cluster:
        informers = Informers(cluster.client, Runtime("test"))
        revisions = informers.get(CONTROLLER_REVISIONS)
        running = asyncio.ensure_future(informers.run())
        numbers = []
        await cluster.client.create(DEPLOYMENTS, builders.deployment("web", replicas=0))
        for image in ("a", "b", "a"):
            container = {"name": "main", "image": image}
            change = {"spec": {"template": {"spec": {"containers": [container]}}}}
            owner = await cluster.client.patch(DEPLOYMENTS, Key("default", "web"), change)
            numbers.append(await record(cluster.client, owner, revisions))
            await cluster.sleep(1)
        assert numbers == [1, 2, 3]
        assert len(revisions.list()) == 2
        running.cancel()


@pytest.mark.virtual
async def test_lab_example_builds_balancers_and_routes() -> None:
    made: list[Any] = []
    code = example("lab")

    def provide(context: CloudContext) -> Any:
        made.append(code["PROVIDER"](context))
        return made[0]

    async with Cluster() as cluster:
        flags = (
            "--leader-elect=false",
            "--cloud-provider=lab",
            "--controllers=service-lb-controller,node-route-controller",
        )
        ranges = ("--allocate-node-cidrs", "--cluster-cidr=10.1.0.0/16")
        await cluster.manage(*flags, *ranges, cloud_providers={"lab": provide})
        node = Node(metadata=ObjectMeta(name="a"), spec=NodeSpec(pod_cidr="10.1.0.0/24", pod_cidrs=("10.1.0.0/24",)))
        await cluster.client.create(NODES, node)
        for name in ("web", "other-web"):
            await cluster.client.create(SERVICES, builders.service(name, type="LoadBalancer"))
        await cluster.advance(minutes=5)
        web = (await cluster.client.get(SERVICES, Key("default", "web"))).status.load_balancer
        assert web.ingress[0].hostname == "web.lab.example"
        assert not (await cluster.client.get(SERVICES, Key("default", "other-web"))).status.load_balancer.ingress
        assert [route.destination for route in made[0].routes.table] == ["10.1.0.0/24"]
        assert list(made[0].load_balancers.firewall.values()) == [["0.0.0.0/0"]]
        assert not await made[0].instances.exists(node)
        assert await made[0].instances.is_shut_down(node)


def test_cel_objects_example_compiles_evaluates_and_limits_cost() -> None:
    code = example("cel_objects")
    compiled, holds = code["compiled"], code["holds"]
    container = {"name": "main", "cpus": 0.5, "privileged": False}
    job = {"name": "a", "labels": {"app": "web"}, "containers": [container], "started": "2026-01-01T00:00:00Z"}
    job |= {"deadline": "1h", "retries": 2, "extra": {"any": "web"}}
    rule = "job.containers.all(c, !c.privileged && c.cpus < 1.0) && job.labels['app'] == job.extra.any"
    assert holds(compiled(rule), job) is True
    assert holds(compiled("job.labels['absent'] == ''"), job) is None
    assert holds(compiled(rule), job, limit=1) is None
    results = code["results"](job)
    assert (results["retries"], results["name"], results["load"]) == (2, b"a", 0.5)
    with pytest.raises(ValueError, match="must be of the type bool"):
        compiled("job.name")
    with pytest.raises(ValueError, match="undefined field 'nmae'"):
        compiled("job.nmae == ''")
