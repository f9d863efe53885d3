"""All flags of a manager: those of the process, each declared beside its reader, and those of its controllers."""

from collections.abc import Sequence

from controller_manager.app.access.authentication import AuthenticationOptions, check_uid_headers
from controller_manager.app.access.authorization import AuthorizationOptions
from controller_manager.app.awaited import AWAITED
from controller_manager.app.awaited import CHECKS as AWAITED_CHECKS
from controller_manager.app.catalog import AnySpec, CatalogOptions, names_known
from controller_manager.app.clients import ClientOptions
from controller_manager.app.election import ElectionOptions
from controller_manager.app.features import FeatureOptions
from controller_manager.app.logs import LogOptions, logs_allowed
from controller_manager.app.manager import ManagerOptions
from controller_manager.app.migration import MigrationOptions
from controller_manager.app.pages.metrics import MetricsOptions
from controller_manager.app.pages.profiling import ProfilingOptions
from controller_manager.app.secure import ServingOptions
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
    LogOptions,
    FeatureOptions,
)

_CHECKS: tuple[Check, ...] = (logs_allowed, check_uid_headers, *AWAITED_CHECKS)


def flag_set(specs: Sequence[AnySpec]) -> FlagSet:
    """The flags of a process with these controllers."""
    controllers = (spec.options for spec in specs)
    return FlagSet(*_PROCESS, *controllers, *AWAITED, checks=(*_CHECKS, names_known(specs)))
