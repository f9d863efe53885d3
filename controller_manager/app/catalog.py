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
from typing import Any, ClassVar, NamedTuple

from controller_manager.app.features import FeatureOptions
from controller_manager.controller import ControllerSpec
from controller_manager.options import Check, Options, Parsed, StringList, flag
from controller_manager.options.parse import did_you_mean

# Every controller of the control plane this one stands in for, by the names users write in `--controllers`.


class Known(NamedTuple):
    """A controller: its name, the name it used to have, and whether it runs unless told otherwise."""

    name: str
    alias: str = ""
    default_on: bool = True


# API version 1.36.
KNOWN: tuple[Known, ...] = (
    Known("bootstrap-signer-controller", "bootstrapsigner", default_on=False),
    Known("certificatesigningrequest-approving-controller", "csrapproving"),
    Known("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    Known("certificatesigningrequest-signing-controller", "csrsigning"),
    Known("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
    Known("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    Known("cronjob-controller", "cronjob"),
    Known("daemonset-controller", "daemonset"),
    Known("deployment-controller", "deployment"),
    Known("device-taint-eviction-controller"),
    Known("disruption-controller", "disruption"),
    Known("endpoints-controller", "endpoint"),
    Known("endpointslice-controller", "endpointslice"),
    Known("endpointslice-mirroring-controller", "endpointslicemirroring"),
    Known("ephemeral-volume-controller", "ephemeral-volume"),
    Known("garbage-collector-controller", "garbagecollector"),
    Known("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"),
    Known("job-controller", "job"),
    Known("kube-apiserver-serving-clustertrustbundle-publisher-controller"),
    Known("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    Known("namespace-controller", "namespace"),
    Known("node-ipam-controller", "nodeipam"),
    Known("node-lifecycle-controller", "nodelifecycle"),
    Known("node-route-controller", "route"),
    Known("persistentvolume-attach-detach-controller", "attachdetach"),
    Known("persistentvolume-binder-controller", "persistentvolume-binder"),
    Known("persistentvolume-expander-controller", "persistentvolume-expander"),
    Known("persistentvolume-protection-controller", "pv-protection"),
    Known("persistentvolumeclaim-protection-controller", "pvc-protection"),
    Known("pod-garbage-collector-controller", "podgc"),
    Known("podcertificaterequest-cleaner-controller"),
    Known("replicaset-controller", "replicaset"),
    Known("replicationcontroller-controller", "replicationcontroller"),
    Known("resourceclaim-controller", "resource-claim-controller"),
    Known("resourcepoolstatusrequest-controller"),
    Known("resourcequota-controller", "resourcequota"),
    Known("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    Known("selinux-warning-controller", default_on=False),
    Known("service-cidr-controller"),
    Known("service-lb-controller", "service"),
    Known("serviceaccount-controller", "serviceaccount"),
    Known("serviceaccount-token-controller", "serviceaccount-token"),
    Known("statefulset-controller", "statefulset"),
    Known("storage-version-migrator-controller", "svm"),
    Known("storageversion-garbage-collector-controller", "storage-version-gc"),
    Known("taint-eviction-controller"),
    Known("token-cleaner-controller", "tokencleaner", default_on=False),
    Known("ttl-after-finished-controller", "ttl-after-finished"),
    Known("ttl-controller", "ttl"),
    Known("validatingadmissionpolicy-status-controller"),
    Known("volumeattributesclass-protection-controller"),
)


def known_names(known: Iterable[Known] = KNOWN) -> Mapping[str, str]:
    """The present name of each controller, by that and by its alias."""
    return {name: one.name for one in known for name in (one.name, one.alias) if name}


_NAME = "controllers"
_PRIVATE = "controller_manager_builtins"

ENTRY_POINTS = "cluster_controller_manager.controllers"
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
    names = _names(specs, KNOWN)
    mentions = [(names[name.removeprefix("-")], name in names) for name in wanted if name != "*"]
    first = dict(reversed(mentions))
    return [spec for spec in specs if first.get(spec.name, "*" in wanted and spec.default_on)]


def choose(specs: Sequence[AnySpec], parsed: Parsed) -> list[AnySpec]:
    """The controllers that run in this process, as far as its features go and its flags ask for them."""
    enabled = parsed[FeatureOptions].enabled
    wanted = select(specs, parsed[CatalogOptions].controllers)
    on = [spec for spec in wanted if all(map(enabled, spec.gates))]
    return [spec.with_features(enabled) for spec in on if spec.asked_for(parsed[spec.options])]


def names_known(specs: Sequence[AnySpec], known: Sequence[Known] = KNOWN) -> Check:
    """The rule that `--controllers` names controllers somebody has heard of."""
    names = _names(specs, known)

    def check(parsed: Parsed) -> Iterator[str]:
        for name in parsed[CatalogOptions].controllers:
            if name != "*" and name.removeprefix("-") not in names:
                closest = did_you_mean(name.removeprefix("-"), names) or "; --help names all there are"
                yield f"--controllers: there is no controller {name!r}{closest}"

    return check


def not_built(specs: Sequence[AnySpec], wanted: Sequence[str]) -> list[str]:
    """The controllers that `--controllers` turns on by name and that are still to come."""
    names, built = _names(specs, KNOWN), {spec.name for spec in specs}
    return [name for name in dict.fromkeys(names[one] for one in wanted if one in names) if name not in built]


def not_enabled(specs: Sequence[AnySpec], parsed: Parsed) -> list[str]:
    """The controllers that `--controllers` turns on by name and whose feature gates are off, with these."""
    enabled, wanted = parsed[FeatureOptions].enabled, parsed[CatalogOptions].controllers
    named = select(specs, [name for name in wanted if name != "*"])
    off = {spec.name: [gate for gate in spec.gates if not enabled(gate)] for spec in named}
    return [f"{name} ({', '.join(gates)})" for name, gates in off.items() if gates]


def not_asked_for(specs: Sequence[AnySpec], parsed: Parsed) -> list[str]:
    """The controllers that `--controllers` turns on by name and that run only where other flags ask for them."""
    named = select(specs, [name for name in parsed[CatalogOptions].controllers if name != "*"])
    return [spec.name for spec in named if not spec.asked_for(parsed[spec.options])]


def notes(specs: Sequence[AnySpec], known: Sequence[Known] = KNOWN) -> Mapping[str, str]:
    """Return what `--help` says about controllers, by heading."""
    built = {spec.name: spec.default_on for spec in specs}
    texts = {
        "Controllers that are on by default": [name for name, is_on in built.items() if is_on],
        "Controllers that are off by default": [name for name, is_on in built.items() if not is_on],
        "Controllers that --controllers may name and that are not built yet": [
            one.name for one in known if one.name not in built
        ],
    }
    return {heading: ", ".join(names) for heading, names in texts.items() if names}


def _names(specs: Iterable[AnySpec], known: Sequence[Known]) -> dict[str, str]:
    """The name of each controller by all the names it goes by; what is installed outranks what is only known."""
    return {**known_names(known), **{name: spec.name for spec in specs for name in (spec.name, *spec.aliases)}}


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
