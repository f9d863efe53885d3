"""A program made of controllers: its name, by which everything it does goes, its controllers and all its flags."""

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
from controller_manager.common.options import Check, FlagSet, Options
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
    """The flags of a process with these controllers; `cloud_providers` are known besides those that are installed."""
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
    """`notes` are paragraphs by heading for the end of its help."""

    name: str
    specs: Sequence[catalog.AnySpec]
    flags: FlagSet
    notes: Mapping[str, str]
    summary: str = _SUMMARY


def manager_program() -> ProcessProgram:
    """The controller manager, with everything that is installed."""
    specs = catalog.installed()
    return ProcessProgram("cluster-controller-manager", specs, flag_set(specs), catalog.notes(specs))


def author_program(name: str, specs: Sequence[catalog.AnySpec], *, builtins: bool = False) -> ProcessProgram:
    """A program of an author's own. Its lease has its name, its port is a free one, since it runs beside other
    managers, and its client configuration is used for access checks too.

    Raises ValueError for a name that no lease can have, or two controllers of one name.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"the name of a program has lower-case letters, digits and dashes, 63 at most: not {name!r}")
    every = catalog.in_order((*specs, *catalog.installed()) if builtins else specs)
    flags = flag_set(every, defaults={"leader-elect-resource-name": name, **_AUTHOR_DEFAULTS})
    return ProcessProgram(name, every, flags, catalog.notes(every))
