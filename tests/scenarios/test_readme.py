"""The code that README shows works as it stands."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from controller_manager.common.api.core import NODES, PODS, SERVICES, Node
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.resource import Key
from controller_manager.framework.cloud_provider import CloudContext
from controller_manager.testing import Cluster, builders

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(word: str) -> dict[str, Any]:
    """The names that the Python block with `word` in it defines."""
    code = next(code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if word in code)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    return names


@pytest.mark.virtual
async def test_the_test() -> None:
    await block("test_pods_run")["test_pods_run"]()


def test_the_expression() -> None:
    assert block("Environment.base()")["program"].expression.startswith("replicas > 2")


@pytest.mark.virtual
async def test_the_controller_of_pods() -> None:
    code = block("Replicator")
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
async def test_the_provider_of_a_cloud(tmp_path: Path) -> None:
    made: list[Any] = []
    rack, config = block("class Rack:")["Rack"], tmp_path / "addresses.txt"
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
async def test_the_controller() -> None:
    specs = block("greeter-controller")["SPECS"]
    async with Cluster() as cluster:
        await cluster.manage("--leader-elect=false", "--greeting=hi", specs=specs)
        await cluster.client.create(PODS, builders.pod("a"))
        await cluster.settle()
        found = await cluster.client.get(PODS, Key("default", "a"))
        assert (found.metadata.annotations or {})["greeting"] == "hi"
