"""The controllers that are installed, found by entry points, and the choice among them that `--controllers` makes."""

import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, ClassVar

from controller_manager.controller import Spec
from controller_manager.options import FlagError, Options, StringList, flag

ENTRY_POINTS = "cluster_controller_manager.controllers"

AnySpec = Spec[Any]


class CatalogOptions(Options):
    """Which controllers run."""

    title: ClassVar[str] = "Controllers"

    controllers: StringList = flag(
        ("*",),
        "controllers to run: '*' is every controller that is on by default, 'foo' turns the controller foo on and "
        "'-foo' turns it off; of several mentions of one controller the first counts",
    )


def installed() -> tuple[AnySpec, ...]:
    """Every controller of every package that an entry point of our group names, in order of their names."""
    found = [spec for entry in entry_points(group=ENTRY_POINTS) for spec in discover(import_module(entry.value))]
    _check_names(found)
    return tuple(sorted(found, key=lambda spec: spec.name))


def discover(package: ModuleType) -> Iterator[AnySpec]:
    """The `SPECS` of the modules of a package; a module whose name starts with an underscore is a helper."""
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            yield from getattr(import_module(f"{package.__name__}.{module.name}"), "SPECS", ())


def select(specs: Sequence[AnySpec], wanted: Sequence[str]) -> list[AnySpec]:
    """The controllers that `--controllers` turns on; raises FlagError for names nobody has."""
    canonical = {alias: spec.name for spec in specs for alias in (spec.name, *spec.aliases)}
    unknown = [name for name in wanted if name != "*" and name.removeprefix("-") not in canonical]
    if unknown:
        known = ", ".join(sorted(spec.name for spec in specs))
        raise FlagError([f"--controllers: there is no controller {one!r}; there are: {known}" for one in unknown])
    mentions = [(canonical[name.removeprefix("-")], name in canonical) for name in wanted if name != "*"]
    first = dict(reversed(mentions))
    return [spec for spec in specs if first.get(spec.name, "*" in wanted and spec.default_on)]


def _check_names(specs: Iterable[AnySpec]) -> None:
    owners: dict[str, AnySpec] = {}
    for spec in specs:
        for name in (spec.name, *spec.aliases):
            other = owners.setdefault(name, spec)
            if other is not spec:
                raise ValueError(f"two controllers are called {name!r}: {other.name} and {spec.name}")
