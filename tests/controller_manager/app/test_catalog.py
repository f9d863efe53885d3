"""Which controllers are found, and which of them `--controllers` turns on."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

import pytest

from controller_manager.app import catalog
from controller_manager.options import FlagError


@dataclass(frozen=True)
class Listed:
    """What the choice looks at."""

    name: str
    aliases: tuple[str, ...] = ()
    default_on: bool = True


SPECS = (
    Listed("endpoints-controller", ("endpoint",)),
    Listed("namespace-controller"),
    Listed("token-cleaner", (), False),
)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (("*",), ["endpoints-controller", "namespace-controller"]),
        (("*", "token-cleaner"), ["endpoints-controller", "namespace-controller", "token-cleaner"]),
        (("*", "-endpoint"), ["namespace-controller"]),
        (("-endpoints-controller", "*"), ["namespace-controller"]),
        (("endpoint",), ["endpoints-controller"]),
        (("endpoint", "-endpoints-controller"), ["endpoints-controller"]),
        (("-endpoint", "endpoints-controller"), []),
        ((), []),
    ],
)
def test_the_choice(wanted, names):
    assert [spec.name for spec in catalog.select(SPECS, wanted)] == names


def test_a_name_nobody_has_is_refused_with_those_there_are():
    with pytest.raises(FlagError) as caught:
        catalog.select(SPECS, ("*", "-nope", "garbage"))
    assert caught.value.problems == tuple(
        f"--controllers: there is no controller {one!r}; "
        "there are: endpoints-controller, namespace-controller, token-cleaner"
        for one in ("-nope", "garbage")
    )


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


def test_a_package_is_searched_for_specs(package):
    assert list(catalog.discover(import_module(package))) == ["big", "bigger", "small"]


def test_the_controllers_of_this_project_are_installed():
    assert {"endpoints-controller", "namespace-controller"} <= {spec.name for spec in catalog.installed()}
