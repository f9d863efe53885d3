"""Discovery of controllers, and selection by `--controllers`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from controller_manager.app import catalog
from controller_manager.app.catalog import CatalogOptions
from controller_manager.app.features import ManagerFeatureOptions
from controller_manager.app.program import flag_set
from controller_manager.common.options.parse import Parsed
from controller_manager.framework import NODES, PODS, ControllerSpec, For, Mapped, Options, PolicyRule


@dataclass(frozen=True)
class Listed:
    """The fields of a spec that the selection reads."""

    name: str
    aliases: tuple[str, ...] = ()
    default_on: bool = True


class Nothing:
    """A controller with nothing to do."""

    async def reconcile(self, _key: object) -> None:
        """Do nothing."""


SPECS = (
    Listed("endpoints-controller", ("endpoint",)),
    Listed("namespace-controller"),
    Listed("token-cleaner", (), False),
)


@pytest.mark.flag("controllers")
@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (("*",), ["endpoints-controller", "namespace-controller"]),
        (("*", "token-cleaner"), ["endpoints-controller", "namespace-controller", "token-cleaner"]),
        (("*", "-endpoint"), ["namespace-controller"]),
        (("-endpoints-controller", "*"), ["namespace-controller"]),
        (("endpoint",), ["endpoints-controller"]),
        (("namespace-controller",), ["namespace-controller"]),
        (("endpoint", "-endpoints-controller"), ["endpoints-controller"]),
        (("-endpoint", "endpoints-controller"), []),
        ((), []),
    ],
)
def test_controllers_flag_selects_specs(wanted, names):
    assert [spec.name for spec in catalog.select(SPECS, wanted)] == names


def test_unknown_controller_is_refused_with_closest_name():
    parsed = Parsed(CatalogOptions(controllers=("*", "-endpoints", "xyzzy", "token-cleanr", "-namespace-controller")))
    assert list(catalog.names_known(SPECS)(parsed)) == [
        "--controllers: there is no controller '-endpoints'; did you mean endpoint?",
        "--controllers: there is no controller 'xyzzy'; --help names all there are",
        "--controllers: there is no controller 'token-cleanr'; did you mean token-cleaner?",
    ]


def test_help_lists_controllers():
    assert list(catalog.notes(SPECS).values()) == ["endpoints-controller, namespace-controller", "token-cleaner"]


GATE = "TaintTolerationComparisonOperators"
GATED = (
    ControllerSpec(
        name="namespace-controller",
        reconciler=lambda _context, _options: Nothing(),
        options=Options,
        watches=(For(PODS), Mapped(NODES, gate=GATE)),
        rbac=(PolicyRule(("",), ("pods",), ("get",)), PolicyRule(("",), ("nodes",), ("get",), gate=GATE)),
    ),
    ControllerSpec(
        name="endpoints-controller",
        reconciler=lambda _context, _options: Nothing(),
        options=Options,
        watches=(),
        gates=(GATE,),
    ),
)


@pytest.mark.parametrize(
    ("on", "names", "resources"), [("false", ["namespace-controller"], ["pods"]), ("true", None, ["pods", "nodes"])]
)
def test_controller_with_disabled_gate_does_not_run(on, names, resources):
    parsed = Parsed(
        CatalogOptions(controllers=("*", "endpoints-controller")),
        ManagerFeatureOptions(feature_gates={"": (f"{GATE}={on}",)}),
    )
    chosen = catalog.choose(GATED, parsed)
    assert [spec.name for spec in chosen] == (names or [spec.name for spec in GATED])
    assert [watch.resource.plural for watch in chosen[0].watches] == resources
    assert [rule.resources[0] for rule in chosen[0].rbac] == resources
    assert catalog.not_enabled(GATED, parsed) == ([f"endpoints-controller ({GATE})"] if names else [])


def test_controller_without_required_flag_does_not_run():
    for argv, runs in (
        (["--controllers=nodeipam"], False),
        (["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8"], True),
    ):
        parsed = flag_set(catalog.installed()).parse(argv)
        assert ("node-ipam-controller" in [spec.name for spec in catalog.choose(catalog.installed(), parsed)]) is runs
        assert catalog.not_asked_for(catalog.installed(), parsed) == ([] if runs else ["node-ipam-controller"])


def test_controllers_and_aliases_equal_upstream():
    rows = [json.loads(line) for line in Path(__file__).with_name("controllers.jsonl").read_text().splitlines()]
    found = {spec.name: spec for spec in catalog.installed()}
    ours = ["scheduler", "virtual-node-controller"]
    assert sorted(found) == sorted([*(row["name"] for row in rows), *ours])
    assert not any(found[name].default_on for name in ours)
    for row in rows:
        spec = found[row["name"]]
        assert spec.default_on is row["default_on"], spec.name
        assert catalog.select([spec], (row["alias"] or spec.name,)) == [spec]


@pytest.fixture
def package(tmp_path, monkeypatch) -> Iterator[str]:
    folder = tmp_path / "third_party_controllers"
    (folder / "big").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "small.py").write_text("SPECS = ('small',)\n")
    (folder / "big" / "__init__.py").write_text("SPECS = ('big', 'bigger')\n")
    (folder / "plain.py").write_text("")
    (folder / "_helper.py").write_text("raise RuntimeError('a helper is not loaded')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for name in [one for one in sys.modules if one.startswith(folder.name)]:
        del sys.modules[name]


def test_discover_finds_specs_in_package(package):
    assert list(catalog.discover(import_module(package))) == ["big", "bigger", "small"]


def test_project_controllers_are_installed():
    assert {"endpoints-controller", "namespace-controller"} <= {spec.name for spec in catalog.installed()}
