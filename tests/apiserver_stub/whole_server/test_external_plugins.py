"""Admission plugins of other packages: found by entry points, validated, and isolated when they fail."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.admission import AdmissionContext, AdmissionPlugin, Attributes, Rule
from apiserver_stub.common.config_file import ConfigFileError
from apiserver_stub.common.flags import FLAGS
from controller_manager.common.api.core import CONFIG_MAPS, ConfigMap
from controller_manager.common.api.errors import InternalError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.options.parse import FlagError
from controller_manager.testing import Cluster

CODE = '''
"""Pods carry the label `team`: the one that is usual, unless they have one that is known."""

from apiserver_stub.admission import AdmissionContext, AdmissionPlugin, Attributes, ConfigDocument, ErrorList, Rule


class TeamLabelConfiguration(ConfigDocument):
    """The teams there are, and the usual one."""

    kind: str = "TeamLabelConfiguration"
    teams: tuple[str, ...] = ()
    usual: str = ""


def check(found: TeamLabelConfiguration) -> ErrorList:
    errors = ErrorList()
    if found.usual not in found.teams:
        errors.invalid((None, "usual"), found.usual, "must be one of the teams")
    return errors


def team_label(context: AdmissionContext) -> AdmissionPlugin:
    found = context.configuration({"teams.example.com/v1": TeamLabelConfiguration}, check)
    assert found is not None, "it needs a configuration"

    async def label(attributes: Attributes) -> None:
        metadata = attributes.tree["metadata"]
        if "team" not in (metadata.get("labels") or {}):
            metadata["labels"] = {**(metadata.get("labels") or {}), "team": found.usual}
            attributes.notes.warn(f"the pod belongs to {found.usual}")

    def judge(attributes: Attributes) -> None:
        team = attributes.tree["metadata"]["labels"]["team"]
        attributes.notes.annotate("teams.example.com/team", team)
        if team not in found.teams:
            raise attributes.refused(f"there is no team {team}")

    pods = (("create", "update"), ("pods",))
    return AdmissionPlugin("TeamLabel", mutating=[Rule(label, *pods)], validating=[Rule(judge, *pods)])
'''
DOCUMENT = """apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: TeamLabel
  configuration: {apiVersion: teams.example.com/v1, kind: TeamLabelConfiguration, teams: [a, b], usual: %s}
"""
PODS = "/api/v1/namespaces/default/pods"
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Create a distribution in Python's path, like an installer."""

    def put(package: str, code: str, entry: str, plugin: str = "TeamLabel") -> None:
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{package}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[apiserver_stub.admission]\n{plugin} = {entry}\n")
        monkeypatch.syspath_prepend(folder)

    return put


def pod(name: str, **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


async def test_package_adds_a_plugin(started: Callable[..., Any], install: Install, tmp_path: Path) -> None:
    install("team_label", CODE, "team_label:team_label")
    (tmp_path / "a.yaml").write_text(DOCUMENT % "b")
    flags = ["--enable-admission-plugins=TeamLabel", f"--admission-control-config-file={tmp_path}/a.yaml"]
    async with started(*flags) as api:
        answer = await api.send("POST", PODS, pod("p"))
        assert answer.status == 201
        assert json.loads(answer.body)["metadata"]["labels"] == {"team": "b"}
        assert answer.repeated["warning"] == ('299 - "the pod belongs to b"',)
        refusal = await api.send("POST", PODS, pod("q", team="c"))
        assert refusal.status == 403
        assert json.loads(refusal.body)["message"] == 'pods "q" is forbidden: there is no team c'
        metrics = (await api.send("GET", "/metrics")).body.decode()
    family = "apiserver_admission_controller_admission_duration_seconds_count"
    for kind, rejected in (("admit", "false"), ("validate", "false"), ("validate", "true")):
        labels = f'name="TeamLabel",operation="CREATE",rejected="{rejected}",type="{kind}"'
        assert f"{family}{{{labels}}}" in metrics


async def test_plugin_is_off_without_the_flag(started: Callable[..., Any], install: Install) -> None:
    install("team_label", CODE, "team_label:team_label")
    async with started() as api:
        assert (await api.send("POST", PODS, pod("p", team="c"))).status == 201


@pytest.mark.parametrize(
    ("code", "entry", "message"),
    [
        ("", "broken:missing", "of the package broken (broken:missing): AttributeError"),
        ("1 / 0", "broken:make", "of the package broken (broken:make): ZeroDivisionError: division"),
        ("import nowhere", "broken:make", "(broken:make): ModuleNotFoundError: No module named 'nowhere'"),
        ("def make(context): raise KeyError('x')", "broken:make", "(broken:make): KeyError: 'x'"),
        ("def make(context): return 1", "broken:make", "its factory returned a int, expected an AdmissionPlugin"),
        (
            "from apiserver_stub.admission import AdmissionPlugin\ndef make(context): return AdmissionPlugin('Other')",
            "broken:make",
            "the admission plugin Broken is invalid: it is named 'Other'",
        ),
    ],
)
async def test_unusable_plugin_fails_the_start(
    code: str, entry: str, message: str, started: Callable[..., Any], install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    install("broken", code, entry, "Broken")
    with pytest.raises(ValueError, match="admission plugin Broken") as refusal:
        async with started("--enable-admission-plugins=Broken"):
            pass
    assert message in str(refusal.value)


async def test_plugin_name_must_be_unique(started: Callable[..., Any], install: Install) -> None:
    install("one", CODE, "one:team_label")
    install("two", CODE, "two:team_label")
    with pytest.raises(ValueError, match=r"is in two packages: the package (one|two) .*the package (one|two)"):
        async with started("--enable-admission-plugins=TeamLabel"):
            pass
    with pytest.raises(FlagError, match="there is no admission plugin 'TeamLabels'"):
        FLAGS.parse(["--enable-admission-plugins=TeamLabels"])


async def test_plugin_configuration_is_validated(started: Callable[..., Any], install: Install, tmp_path: Path) -> None:
    install("team_label", CODE, "team_label:team_label")
    (tmp_path / "a.yaml").write_text(DOCUMENT % "c")
    flags = ["--enable-admission-plugins=TeamLabel", f"--admission-control-config-file={tmp_path}/a.yaml"]
    with pytest.raises(ConfigFileError, match=r"a\.yaml: plugins\[0\]\.configuration\.usual: Invalid value: \"c\""):
        async with started(*flags):
            pass


def careless(context: AdmissionContext) -> AdmissionPlugin:
    """A plugin that misbehaves as the name of a ConfigMap says."""

    async def change(attributes: Attributes) -> None:
        match attributes.tree["metadata"]["name"]:
            case "fails":
                raise KeyError("secret")
            case "number":
                attributes.tree["data"] = 5
            case "thing":
                attributes.tree["data"] = {"a": object()}
            case "unknown":
                attributes.tree["other"] = 1
            case "fine":
                attributes.tree["data"] = {"found": str(context.get("namespaces", "default") is not None)}

    async def look(attributes: Attributes) -> None:
        attributes.tree["data"] = {"changed": "too late"}
        if attributes.name == "late":
            raise ZeroDivisionError

    maps = (("create", "update"), ("configmaps",))
    return AdmissionPlugin("Careless", mutating=[Rule(change, *maps)], validating=[Rule(look, *maps)])


def config_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"a": "b"})


@pytest.mark.virtual
async def test_failing_plugin_fails_one_request() -> None:
    async with Cluster(admission_plugins={"Careless": careless}) as cluster:
        for name, why in (
            ("fails", "the admission plugin Careless failed: KeyError$"),
            ("late", "the admission plugin Careless failed: ZeroDivisionError$"),
            ("number", "the admission plugin Careless produced an invalid object"),
            ("thing", "the admission plugin Careless produced an invalid object"),
        ):
            with pytest.raises(InternalError, match=why):
                await cluster.client.create(CONFIG_MAPS, config_map(name))
        made = await cluster.client.create(CONFIG_MAPS, config_map("fine"))
        assert made.data == {"found": "True"}
        made = await cluster.client.create(CONFIG_MAPS, config_map("plain"))
        assert made.data == {"a": "b"}


REWRITING = """
from apiserver_stub.admission import AdmissionPlugin, Rule

def rewrite(attributes):
    for tree in (attributes.old_object, attributes.object if PHASE == "validating" else None):
        if tree is not None:
            tree["metadata"]["labels"]["by"] = "plugin"
            tree["spec"]["replicas"] = -5

def make(context):
    return AdmissionPlugin("Rewriting", **{PHASE: [Rule(rewrite, ("update",), ("deployments.apps",))]})
"""


@pytest.mark.parametrize("phase", ["mutating", "validating"])
async def test_old_object_changed_by_plugin_is_not_stored(
    started: Callable[..., Any], install: Install, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that modifies the old object changes only its own copy."""
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    url = "/apis/apps/v1/namespaces/default/deployments"
    monkeypatch.delitem(sys.modules, "rewriting", raising=False)
    install("rewriting", f"PHASE = {phase!r}\n{REWRITING}", "rewriting:make", "Rewriting")
    async with started("--enable-admission-plugins=Rewriting") as api:
        assert (await api.post(url, {"metadata": {"name": "d", "labels": labels}, "spec": spec})).status == 201
        for number in range(3):
            patch = {"metadata": {"labels": {"number": str(number)}}}
            shown = await api.patch(f"{url}/d", patch)
            assert (shown.status, shown.tree["metadata"]["generation"], shown.tree["spec"]["replicas"]) == (200, 1, 1)
            assert shown.tree["metadata"]["labels"] == {**labels, "number": str(number)}
