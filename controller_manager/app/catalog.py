"""The installed controllers (built-in or from entry points), and their selection by `--controllers`."""

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
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import Check, Parsed, did_you_mean
from controller_manager.common.options.types import StringList
from controller_manager.framework.controller.spec import ControllerSpec

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
    """Return all built-in controllers, and those of packages with an entry point of our group, sorted by name.

    The result is cached, because the lookup takes longer than the rest of the start.
    """
    others = [entry for entry in entry_points(group=ENTRY_POINTS) if entry.dist is None or entry.dist.name != _OURS]
    packages = [builtin_package(), *(import_module(entry.value) for entry in others)]
    return in_order(spec for package in packages for spec in discover(package))


def in_order(specs: Iterable[AnySpec]) -> tuple[AnySpec, ...]:
    """Return controllers sorted by name. Raises ValueError if two have the same name."""
    found = tuple(sorted(specs, key=lambda spec: spec.name))
    _check_names(found)
    return found


def discover(package: ModuleType) -> Iterator[AnySpec]:
    """Yield the `SPECS` of the modules of a package, except modules whose name starts with an underscore."""
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            yield from getattr(import_module(f"{package.__name__}.{module.name}"), "SPECS", ())


def select(specs: Sequence[AnySpec], wanted: Sequence[str]) -> list[AnySpec]:
    """Return the controllers that `--controllers` turns on; all names must be known."""
    names = _names(specs)
    mentions = [(names[name.removeprefix("-")], name in names) for name in wanted if name != "*"]
    first = dict(reversed(mentions))
    return [spec for spec in specs if first.get(spec.name, "*" in wanted and spec.default_on)]


def choose(specs: Sequence[AnySpec], parsed: Parsed) -> list[AnySpec]:
    """Return the controllers that run in this process, by `--controllers`, feature gates and other flags."""
    enabled = parsed[ManagerFeatureOptions].enabled
    wanted = select(specs, parsed[CatalogOptions].controllers)
    on = [spec for spec in wanted if all(map(enabled, spec.gates))]
    return [spec.with_features(enabled) for spec in on if spec.asked_for(parsed[spec.options])]


def names_known(specs: Sequence[AnySpec]) -> Check:
    """Return the check that `--controllers` names known controllers."""
    names = _names(specs)

    def check(parsed: Parsed) -> Iterator[str]:
        for name in parsed[CatalogOptions].controllers:
            if name != "*" and name.removeprefix("-") not in names:
                closest = did_you_mean(name.removeprefix("-"), names) or "; --help names all there are"
                yield f"--controllers: there is no controller {name!r}{closest}"

    return check


def not_enabled(specs: Sequence[AnySpec], parsed: Parsed) -> list[str]:
    """Return the controllers that `--controllers` names although their feature gates are off, with these gates."""
    enabled, wanted = parsed[ManagerFeatureOptions].enabled, parsed[CatalogOptions].controllers
    named = select(specs, [name for name in wanted if name != "*"])
    off = {spec.name: [gate for gate in spec.gates if not enabled(gate)] for spec in named}
    return [f"{name} ({', '.join(gates)})" for name, gates in off.items() if gates]


def not_asked_for(specs: Sequence[AnySpec], parsed: Parsed) -> list[str]:
    """Return the controllers that `--controllers` names although other required flags are not set."""
    named = select(specs, [name for name in parsed[CatalogOptions].controllers if name != "*"])
    return [spec.name for spec in named if not spec.asked_for(parsed[spec.options])]


def notes(specs: Sequence[AnySpec]) -> Mapping[str, str]:
    """Return the paragraphs of `--help` about controllers, by heading."""
    texts = {
        "Controllers that are on by default": [spec.name for spec in specs if spec.default_on],
        "Controllers that are off by default": [spec.name for spec in specs if not spec.default_on],
    }
    return {heading: ", ".join(names) for heading, names in texts.items() if names}


def _names(specs: Iterable[AnySpec]) -> dict[str, str]:
    """Return the name of each controller by its name and its aliases."""
    return {name: spec.name for spec in specs for name in (spec.name, *spec.aliases)}


def _check_names(specs: Iterable[AnySpec]) -> None:
    owners: dict[str, AnySpec] = {}
    for spec in specs:
        for name in {spec.name, *spec.aliases}:
            if name in owners:
                raise ValueError(f"two controllers are called {name!r}: {owners[name].name} and {spec.name}")
            owners[name] = spec


def builtin_package() -> ModuleType:
    """Return the package `controllers` beside `controller_manager`.

    Another package with this name may come first on `PYTHONPATH` or in the working directory, as many operator projects
    have one. Then ours is imported under a private name, so that both can be imported.
    """
    home = Path(__file__).resolve().parents[2] / _NAME / "__init__.py"
    return import_module(_NAME) if _found_under(_NAME) == home else _load(home)


def _found_under(name: str) -> Path | None:
    """Return the file that `import name` loads, or has loaded."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module without a spec has replaced it
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
