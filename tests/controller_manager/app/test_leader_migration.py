"""Leader migration files, valid and malformed."""

from pathlib import Path
from typing import Any

import pytest

from controller_manager.app.catalog import AnySpec
from controller_manager.app.election import Assignment, ElectionOptions, MigrationOptions, assignment_of
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.flag import Options
from controller_manager.common.options.parse import FlagSet
from controller_manager.framework import ConfigError, ControllerSpec

HEAD = "apiVersion: controllermanager.config.k8s.io/v1alpha1\nkind: LeaderMigrationConfiguration\n"


def spec(name: str, *aliases: str) -> AnySpec:
    return ControllerSpec(name=name, aliases=aliases, reconciler=_unused, watches=(), options=Options)


def _unused(*_: Any) -> Any:
    raise NotImplementedError


SPECS = (spec("route-controller", "route"), spec("service-lb-controller", "service"), spec("namespace-controller"))


def divided(*argv: str, component: str = "cluster-controller-manager") -> Assignment:
    return assignment_of(FlagSet(ElectionOptions, MigrationOptions).parse(argv), SPECS, Runtime(component))


def by_lock(assignment: Assignment) -> dict[str, list[str]]:
    return {lock: [one.name for one in specs] for lock, specs in assignment.by_lock}


def with_file(tmp_path: Path, text: str, *argv: str, component: str = "cluster-controller-manager") -> Assignment:
    path = tmp_path / "migration.yaml"
    path.write_text(text)
    flags = ("--enable-leader-migration", f"--leader-migration-config={path}", *argv)
    return divided(*flags, component=component)


ALL = [one.name for one in SPECS]


@pytest.mark.flag("enable-leader-migration")
def test_without_migration_main_lock_has_all_controllers() -> None:
    assert by_lock(divided()) == {"": ALL}
    assert by_lock(divided("--leader-migration-config=/nowhere")) == {"": ALL}
    assert by_lock(divided("--enable-leader-migration", "--leader-elect=false")) == {"": ALL}


@pytest.mark.flag("enable-leader-migration")
def test_default_migration_moves_cloud_controllers() -> None:
    assert by_lock(divided("--enable-leader-migration")) == {
        "": ["namespace-controller"],
        "cloud-provider-extraction-migration": ["route-controller", "service-lb-controller"],
    }


@pytest.mark.flag("leader-migration-config")
def test_migration_file_assigns_controllers(tmp_path: Path) -> None:
    text = f"""{HEAD}leaderName: hand-over
resourceLock: leases
controllerLeaders:
- name: route
  component: '*'
- name: service-lb-controller
  component: other-manager
- name: a-controller-of-another-component
  component: other-manager
"""
    parts = with_file(tmp_path, text)
    assert by_lock(parts) == {"": ["namespace-controller"], "hand-over": ["route-controller"]}
    assert parts.elsewhere == {"service-lb-controller": "other-manager"}
    other = with_file(tmp_path, text, component="other-manager")
    assert by_lock(other) == {
        "": ["namespace-controller"],
        "hand-over": ["route-controller", "service-lb-controller"],
    }


@pytest.mark.parametrize("component", ["kube-controller-manager", "cluster-controller-manager"])
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1"])
def test_all_versions_and_component_names_are_accepted(tmp_path: Path, version: str, component: str) -> None:
    leaders = f"controllerLeaders: [{{name: service, component: {component}}}]"
    text = HEAD.replace("v1alpha1", version) + f"leaderName: x\n{leaders}\n"
    assert by_lock(with_file(tmp_path, text))["x"] == ["service-lb-controller"]


WRONG = {
    "an unknown version": (HEAD.replace("v1alpha1", "v2") + "leaderName: x", "apiVersion must be one of"),
    "another group": (HEAD.replace("controllermanager.config", "other") + "leaderName: x", "apiVersion must be one of"),
    "another kind": (HEAD.replace("LeaderMigrationConf", "Conf") + "leaderName: x", "$.kind"),
    "no name": (HEAD, "leaderName"),
    "an empty name": (HEAD + "leaderName: ''", "leaderName must not be empty"),
    "an older lock": (HEAD + "leaderName: x\nresourceLock: endpoints", "$.resourceLock"),
    "an unknown field": (HEAD + "leaderName: x\nlocks: y", "unknown field `locks`"),
    "a field of another type": (HEAD + "leaderName: [x]", "$.leaderName"),
    "a leader without component": (
        HEAD + "leaderName: x\ncontrollerLeaders: [{name: a}]",
        "missing required field `component` - at `$.controllerLeaders[0]`",
    ),
    "an empty component": (
        HEAD + "leaderName: x\ncontrollerLeaders: [{name: a, component: ''}]",
        "controllerLeaders[0].component must not be empty",
    ),
    "a controller twice": (
        HEAD + "leaderName: x\ncontrollerLeaders: [{name: a, component: b}, {name: a, component: c}]",
        "controllerLeaders[1].name: 'a' is listed twice",
    ),
    "a key twice": (HEAD + "leaderName: x\nleaderName: y", "line 4: a key is there twice"),
    "no YAML": (HEAD + "leaderName: [", "line 3: expected the node content"),
    "two documents": (HEAD + "leaderName: x\n---\n" + HEAD, "line 4"),
    "no object": ("- 1", "Expected `object`"),
    "nothing": ("", "Expected `object`"),
    "the name of the main lock": (HEAD + "leaderName: cluster-controller-manager", "needs a lock of its own"),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.flag("leader-migration-config")
def test_malformed_migration_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        with_file(tmp_path, text)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_missing_migration_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere cannot be read: No such file"):
        divided("--enable-leader-migration", f"--leader-migration-config={tmp_path}/nowhere")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="bytes is not UTF-8 text"):
        divided("--enable-leader-migration", f"--leader-migration-config={tmp_path}/bytes")
