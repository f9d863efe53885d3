"""A program that runs controllers: its name, its controllers and all its flags."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from controller_manager.app import catalog
from controller_manager.app.access.options import AuthenticationOptions, AuthorizationOptions
from controller_manager.app.catalog import AnySpec, CatalogOptions, names_known
from controller_manager.app.clients import ClientOptions, rates_known
from controller_manager.app.cloud import CloudOptions, provider_known
from controller_manager.app.election import ElectionOptions, MigrationOptions, shards_known
from controller_manager.app.features import ManagerFeatureOptions
from controller_manager.app.manager import ManagerOptions
from controller_manager.app.pages.routes import ServingOptions
from controller_manager.common.component.options import LoggingOptions, MetricsOptions, ProfilingOptions, logs_allowed
from controller_manager.common.component.request_headers import check_uid_headers
from controller_manager.common.options.flag import Options
from controller_manager.common.options.parse import Check, FlagSet
from controller_manager.framework.cloud_provider import MakeCloudProvider

_PROCESS: tuple[type[Options], ...] = (
    CatalogOptions,
    ManagerOptions,
    ClientOptions,
    ElectionOptions,
    MigrationOptions,
    ServingOptions,
    AuthenticationOptions,
    AuthorizationOptions,
    MetricsOptions,
    ProfilingOptions,
    LoggingOptions,
    ManagerFeatureOptions,
)

_NO_DEFAULTS: Mapping[str, Any] = {}
_NO_CLOUDS: Mapping[str, MakeCloudProvider] = {}
_CHECKS: tuple[Check, ...] = (logs_allowed, check_uid_headers)


def flag_set(
    specs: Sequence[AnySpec],
    *,
    defaults: Mapping[str, Any] = _NO_DEFAULTS,
    cloud_providers: Mapping[str, MakeCloudProvider] = _NO_CLOUDS,
) -> FlagSet:
    """Return the flags of a process with these controllers. `cloud_providers` add to the installed ones."""
    clouds, check = ((CloudOptions,), (provider_known(cloud_providers),)) if _in_clouds(specs) else ((), ())
    every = (*_PROCESS, *clouds, *(spec.options for spec in specs))
    return FlagSet(
        *every,
        checks=(*_CHECKS, *check, names_known(specs), shards_known(specs), rates_known(specs)),
        defaults=defaults,
    )


def _in_clouds(specs: Sequence[AnySpec]) -> bool:
    return any(spec.cloud for spec in specs)


_SUMMARY = (
    "Runs the control loops that bring the state of a cluster to what its users asked for. Several replicas may run: "
    "one leads, the others stand by."
)
_AUTHOR_DEFAULTS: Mapping[str, Any] = {"secure-port": None, "use-client-config-for-access-checks": True}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class ProcessProgram(msgspec.Struct, frozen=True):
    """A program; `notes` are paragraphs by heading for the end of its help."""

    name: str
    specs: Sequence[catalog.AnySpec]
    flags: FlagSet
    notes: Mapping[str, str]
    summary: str = _SUMMARY


def manager_program() -> ProcessProgram:
    """Return the controller manager with all installed controllers."""
    specs = catalog.installed()
    return ProcessProgram("cluster-controller-manager", specs, flag_set(specs), catalog.notes(specs))


def author_program(name: str, specs: Sequence[catalog.AnySpec], *, builtins: bool = False) -> ProcessProgram:
    """Return the program of an author. Its lease has its name, it serves on a free port because it runs beside other
    managers, and its client configuration is also used for access checks.

    Raises ValueError if the name is not valid for a lease, or if two controllers have the same name.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"the name of a program has lower-case letters, digits and dashes, 63 at most: not {name!r}")
    every = catalog.in_order((*specs, *catalog.installed()) if builtins else specs)
    flags = flag_set(every, defaults={"leader-elect-resource-name": name, **_AUTHOR_DEFAULTS})
    return ProcessProgram(name, every, flags, catalog.notes(every))
