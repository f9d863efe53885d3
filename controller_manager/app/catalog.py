"""The controllers that are installed, built in or found by entry points, and the choice that `--controllers` makes."""

import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from controller_manager.app import ENTRY_POINTS
from controller_manager.app.features import ManagerFeatureOptions
from controller_manager.common.options import Check, Options, Parsed, StringList, flag
from controller_manager.common.options.parse import did_you_mean
from controller_manager.framework.controller import ControllerSpec

_NAME = "controllers"
_PRIVATE = "controller_manager_builtins"

_OURS = "cluster-controller-manager"

AnySpec = ControllerSpec[Any]


class CatalogOptions(Options):
    """Flags of the choice of controllers."""

    title: ClassVar[str] = "Controllers"

    controllers: StringList = flag(
        ("*",),
        "controllers to run: '*' is every controller that is on by default, 'foo' turns the controller foo on and "
        "'-foo' turns it off; of several mentions of one controller the first counts",
    )


@cache
def installed() -> tuple[AnySpec, ...]:
    """Every built-in controller, and those of every package that an entry point of our group names, by name.

    What is installed is looked up once: that takes longer than the rest of a start.
    """
    others = [entry for entry in entry_points(group=ENTRY_POINTS) if entry.dist is None or entry.dist.name != _OURS]
    packages = [builtin_package(), *(import_module(entry.value) for entry in others)]
    return in_order(spec for package in packages for spec in discover(package))


def in_order(specs: Iterable[AnySpec]) -> tuple[AnySpec, ...]:
    """Controllers by name; raises ValueError if two go by one."""
    found = tuple(sorted(specs, key=lambda spec: spec.name))
    _check_names(found)
    return found


def discover(package: ModuleType) -> Iterator[AnySpec]:
    """The `SPECS` of the modules of a package; a module whose name starts with an underscore is a helper."""
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            yield from getattr(import_module(f"{package.__name__}.{module.name}"), "SPECS", ())


def select(specs: Sequence[AnySpec], wanted: Sequence[str]) -> list[AnySpec]:
    """The controllers that `--controllers` turns on, whose names are known ones."""
    names = _names(specs)
    mentions = [(names[name.removeprefix("-")], name in names) for name in wanted if name != "*"]
    first = dict(reversed(mentions))
    return [spec for spec in specs if first.get(spec.name, "*" in wanted and spec.default_on)]


def choose(specs: Sequence[AnySpec], parsed: Parsed) -> list[AnySpec]:
    """The controllers that run in this process, as far as its features go and its flags ask for them."""
    enabled = parsed[ManagerFeatureOptions].enabled
    wanted = select(specs, parsed[CatalogOptions].controllers)
    on = [spec for spec in wanted if all(map(enabled, spec.gates))]
    return [spec.with_features(enabled) for spec in on if spec.asked_for(parsed[spec.options])]


def names_known(specs: Sequence[AnySpec]) -> Check:
    """The rule that `--controllers` names controllers that there are."""
    names = _names(specs)

    def check(parsed: Parsed) -> Iterator[str]:
        for name in parsed[CatalogOptions].controllers:
            if name != "*" and name.removeprefix("-") not in names:
                closest = did_you_mean(name.removeprefix("-"), names) or "; --help names all there are"
                yield f"--controllers: there is no controller {name!r}{closest}"

    return check


def not_enabled(specs: Sequence[AnySpec], parsed: Parsed) -> list[str]:
    """The controllers that `--controllers` turns on by name and whose feature gates are off, with these."""
    enabled, wanted = parsed[ManagerFeatureOptions].enabled, parsed[CatalogOptions].controllers
    named = select(specs, [name for name in wanted if name != "*"])
    off = {spec.name: [gate for gate in spec.gates if not enabled(gate)] for spec in named}
    return [f"{name} ({', '.join(gates)})" for name, gates in off.items() if gates]


def not_asked_for(specs: Sequence[AnySpec], parsed: Parsed) -> list[str]:
    """The controllers that `--controllers` turns on by name and that run only where other flags ask for them."""
    named = select(specs, [name for name in parsed[CatalogOptions].controllers if name != "*"])
    return [spec.name for spec in named if not spec.asked_for(parsed[spec.options])]


def notes(specs: Sequence[AnySpec]) -> Mapping[str, str]:
    """Return what `--help` says about controllers, by heading."""
    texts = {
        "Controllers that are on by default": [spec.name for spec in specs if spec.default_on],
        "Controllers that are off by default": [spec.name for spec in specs if not spec.default_on],
    }
    return {heading: ", ".join(names) for heading, names in texts.items() if names}


def _names(specs: Iterable[AnySpec]) -> dict[str, str]:
    """The name of each controller by all the names it goes by."""
    return {name: spec.name for spec in specs for name in (spec.name, *spec.aliases)}


def _check_names(specs: Iterable[AnySpec]) -> None:
    owners: dict[str, AnySpec] = {}
    for spec in specs:
        for name in {spec.name, *spec.aliases}:
            if name in owners:
                raise ValueError(f"two controllers are called {name!r}: {owners[name].name} and {spec.name}")
            owners[name] = spec


def builtin_package() -> ModuleType:
    """The `controllers` that stands beside `controller_manager`.

    It goes by its own name unless a package of somebody else comes first under that: in the working directory or on
    `PYTHONPATH`, as every project of an operator has one. Then it goes by a name of ours, and both can be imported.
    """
    home = Path(__file__).resolve().parents[2] / _NAME / "__init__.py"
    return import_module(_NAME) if _found_under(_NAME) == home else _load(home)


def _found_under(name: str) -> Path | None:
    """The file that `import name` loads, or has loaded."""
    try:
        spec = find_spec(name)
    except ValueError:  # something without a specification was put in its place
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def _load(home: Path) -> ModuleType:
    if _PRIVATE not in sys.modules:
        spec = spec_from_file_location(_PRIVATE, home, submodule_search_locations=[str(home.parent)])
        assert spec is not None
        assert spec.loader is not None
        package = module_from_spec(spec)
        sys.modules[_PRIVATE] = package
        spec.loader.exec_module(package)
    return sys.modules[_PRIVATE]
