"""A kopf operator of custom resources, killed and restarted while its definition changes."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.boat_definition import boat, definition, version

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PEERINGS = "/apis/kopf.dev/v1/clusterkopfpeerings"


def peerings() -> dict[str, Any]:
    """The peering definition that kopf's users install."""
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"status": status}}
    names = {"plural": "clusterkopfpeerings", "singular": "clusterkopfpeering", "kind": "ClusterKopfPeering"}
    return {
        "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
        "spec": {
            "group": "kopf.dev",
            "scope": "Cluster",
            "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


class Operator:
    """The operator `boat_operator.py`, and its output over all restarts."""

    def __init__(self, server: Any, group: str, folder: Path, *flags: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBECONFIG": str(server.kubeconfig),
            "GROUP": group,
        }
        self._environment = environment
        self._flags = flags
        self._readers: list[threading.Thread] = []
        self._heard = threading.Condition()
        self.said: list[str] = []
        self.start()

    def start(self) -> None:
        script = str(HERE / "boat_operator.py")
        command = [sys.executable, "-m", "kopf", "run", "--all-namespaces", "--peering=harbour", *self._flags, script]
        self.child = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._readers.append(threading.Thread(target=self._listen, args=(self.child.stdout,)))
        self._readers[-1].start()

    def _listen(self, output: Any) -> None:
        for line in output:
            self._record(line.rstrip())
        self._record("it ended")

    def _record(self, line: str) -> None:
        with self._heard:
            self.said.append(line)
            self._heard.notify_all()

    def times(self, line: str) -> int:
        """The number of times a line was printed."""
        return self.said.count(line)

    def wait(self, *lines: str) -> None:
        """Wait until all of these lines were printed at least once, over all restarts."""

        def missing() -> list[str]:
            return [line for line in lines if not any(line in one for one in self.said)]

        with self._heard:
            self._heard.wait_for(lambda: not missing() or self.child.poll() is not None, timeout=30)
        assert not missing(), "\n".join(self.said)

    def end(self, kill: bool = False) -> None:
        """Stop the operator, or kill it."""
        self.child.kill() if kill else self.child.terminate()
        self.child.wait(timeout=20)
        for reader in self._readers:
            reader.join()


@pytest.fixture
def define(admin: Any, kubectl: Callable[..., str]) -> Iterator[Callable[[Any], None]]:
    """Create a definition and wait until it is served; it is deleted with the test."""
    names: list[str] = []

    def create(tree: Any) -> None:
        names.append(admin.ask("POST", DEFINITIONS, tree)["metadata"]["name"])
        kubectl("wait", "--for=condition=Established", "--timeout=20s", f"crd/{names[-1]}")

    yield create
    kubectl("delete", "crd", *names, "--ignore-not-found", "--timeout=20s")


@pytest.fixture
def group(namespace: str) -> str:
    return f"{namespace}.example.com"


@pytest.fixture
def operator(server: Any, admin: Any, define: Any, group: str, tmp_path: Path) -> Iterator[Operator]:
    """A running operator with its definitions."""
    define(definition(group))
    define(peerings())
    admin.ask(
        "POST", PEERINGS, {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "harbour"}}
    )
    operator = Operator(server, group, tmp_path)
    yield operator
    operator.end()


def wait_until_served(admin: Any, url: str, tree: Any) -> None:
    """Wait until a new version, or new fields of it, are served."""
    for _ in range(1000):
        with suppress(AssertionError):
            if tree["spec"].items() <= admin.ask("POST", f"{url}?dryRun=All", tree)["spec"].items():
                return
    pytest.fail(f"{url} does not take {tree}")


def test_killed_operator_loses_nothing(
    operator: Operator, admin: Any, kubectl: Callable[..., str], group: str, namespace: str
) -> None:
    path = f"/apis/{group}/v1/namespaces/{namespace}/boats"

    def make(name: str, tide: bool = True) -> None:
        tree = boat(group, name)
        tree["metadata"]["labels"] = {"tide": "high"} if tide else {}
        admin.ask("POST", path, tree)

    def alter(name: str, **spec: Any) -> None:
        tree = admin.ask("GET", f"{path}/{name}")
        admin.ask("PUT", f"{path}/{name}", {**tree, "spec": {**tree["spec"], **spec}})

    make("anna")
    make("bert")
    make("carl", tide=False)
    operator.wait("launched anna", "launched bert", "built carl", "sails anna", "looked bert")
    afloat = "--for=jsonpath={.status.launch}=afloat"  # written, not only printed
    kubectl("wait", f"boats.{group}/anna", f"boats.{group}/bert", "-n", namespace, afloat, "--timeout=20s")
    kubectl("wait", f"boats.{group}/carl", "-n", namespace, "--for=jsonpath={.status.build.planks}=40", "--timeout=20s")
    operator.end(kill=True)
    alter("anna", size=7)
    kubectl("label", f"boats.{group}/carl", "-n", namespace, "tide=high")
    kubectl("delete", f"boats.{group}/bert", "-n", namespace, "--wait=false")
    make("dora")
    operator.start()
    operator.wait("refitted anna", "scrapped bert", "launched carl", "launched dora")
    kubectl("wait", f"boats.{group}/bert", "-n", namespace, "--for=delete", "--timeout=20s")
    anna, carl = (admin.ask("GET", f"{path}/{name}") for name in ("anna", "carl"))
    assert (anna["status"]["refitted"], carl["status"]["launch"]) == ("4 to 7", "afloat")
    done = [f"{what} {name}" for what in ("built", "launched") for name in ("anna", "bert", "carl", "dora")]
    assert {line: operator.times(line) for line in done} == dict.fromkeys(done, 1)
    assert operator.times("sails anna") == 2
    kubectl("delete", f"boats.{group}", "--all", "-n", namespace, "--timeout=20s")
    operator.wait("scrapped anna", "scrapped carl", "scrapped dora")


def test_operator_continues_while_definition_changes(
    operator: Operator, admin: Any, kubectl: Callable[..., str], group: str, namespace: str
) -> None:
    path = f"/apis/{group}/v1/namespaces/{namespace}/boats"

    def make(name: str, api_version: str = "v1", **spec: Any) -> None:
        tree = boat(group, name, api_version=api_version, **spec)
        tree["metadata"]["labels"] = {"tide": "high"}
        url = path.replace("/v1/", f"/{api_version}/")
        wait_until_served(admin, url, tree)
        admin.ask("POST", url, tree)

    make("anna")
    operator.wait("launched anna", "sails anna")
    sails = {"type": "integer"}
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=definition(group, version(sails=sails)))
    make("bert", sails=2)
    operator.wait("launched bert", "hoisted bert")
    kubectl("patch", f"boats.{group}/anna", "-n", namespace, "--type=merge", "-p", '{"spec": {"sails": 3}}')
    operator.wait("hoisted anna")
    versions = version(sails=sails), version("v2", storage=False, sails=sails)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=definition(group, *versions))
    kubectl("wait", "--for=jsonpath={.spec.versions[1].name}=v2", "--timeout=20s", f"crd/boats.{group}")
    make("carl", "v2", sails=4)
    operator.wait("launched carl", "hoisted carl")
    kubectl("delete", f"boats.v2.{group}", "--all", "-n", namespace, "--timeout=20s")
    operator.wait("scrapped anna", "scrapped bert", "scrapped carl")
    assert [operator.times(f"launched {name}") for name in ("anna", "bert", "carl")] == [1, 1, 1]
    assert not [line for line in operator.said if "Traceback" in line], "\n".join(operator.said)


def test_operator_of_higher_priority_takes_over(
    operator: Operator,
    server: Any,
    admin: Any,
    kubectl: Callable[..., str],
    group: str,
    namespace: str,
    tmp_path: Path,
) -> None:
    path = f"/apis/{group}/v1/namespaces/{namespace}/boats"
    anna = boat(group, "anna")
    anna["metadata"]["labels"] = {"tide": "high"}
    zoe = {**anna, "metadata": {**anna["metadata"], "name": "zoe"}}
    admin.ask("POST", path, zoe)
    operator.wait("launched zoe")
    second = Operator(server, group, tmp_path, "--priority=10")
    try:
        operator.wait("Pausing operations in favour of")
        admin.ask("POST", path, anna)
        afloat = "--for=jsonpath={.status.launch}=afloat"
        kubectl("wait", f"boats.{group}/anna", "-n", namespace, afloat, "--timeout=20s")
    finally:
        second.end(kill=True)
    admin.ask("POST", path, {**anna, "metadata": {**anna["metadata"], "name": "bert"}})
    operator.wait("launched bert")
    assert (operator.times("launched anna"), second.times("launched anna")) == (0, 1)
    admin.ask("DELETE", path)
    operator.wait("scrapped anna", "scrapped bert", "scrapped zoe")
