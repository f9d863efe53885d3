"""All flags of a manager: those of the process, each declared beside its reader, and those of its controllers."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller_manager.app.access.options import AuthenticationOptions, AuthorizationOptions, check_uid_headers
from controller_manager.app.catalog import KNOWN, AnySpec, CatalogOptions, names_known
from controller_manager.app.clients import ClientOptions
from controller_manager.app.election import ElectionOptions
from controller_manager.app.features import FeatureOptions
from controller_manager.app.manager import ManagerOptions
from controller_manager.app.migration import MigrationOptions
from controller_manager.app.pages.routes import ServingOptions
from controller_manager.app.unimplemented import AWAITED
from controller_manager.app.unimplemented import CHECKS as AWAITED_CHECKS
from controller_manager.component.logs import LoggingOptions, logs_allowed
from controller_manager.component.metrics import MetricsOptions
from controller_manager.component.profiling import ProfilingOptions
from controller_manager.options import Check, FlagSet, Options

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
    FeatureOptions,
)

_NO_DEFAULTS: Mapping[str, Any] = {}
_CHECKS: tuple[Check, ...] = (logs_allowed, check_uid_headers)


def flag_set(specs: Sequence[AnySpec], *, awaited: bool = True, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> FlagSet:
    """The flags of a process with these controllers; with `awaited` those of controllers to come are among them."""
    groups, checks, known = (AWAITED, AWAITED_CHECKS, KNOWN) if awaited else ((), (), ())
    every = (*_PROCESS, *(spec.options for spec in specs), *groups)
    return FlagSet(*every, checks=(*_CHECKS, *checks, names_known(specs, known)), defaults=defaults)
