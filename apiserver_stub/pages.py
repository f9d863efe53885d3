"""The pages of the API server about itself: its version, its metrics, its flags, and its profiles."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from controller_manager.api.wire import Response
from controller_manager.base.runtime import Runtime
from controller_manager.component.pages import Profiling, debugging_routes, metrics_handler
from controller_manager.component.process_metrics import build_info
from controller_manager.component.routes import Handler, fixed
from controller_manager.options import Parsed, reported_version
from controller_manager.serving.health import Health

_NOTHING: Mapping[str, Handler] = MappingProxyType({})


def process_routes(
    options: Parsed, runtime: Runtime, health: Health, profiling: Profiling, others: Mapping[str, Handler] = _NOTHING
) -> Mapping[str, Handler]:
    """Return a handler by path, `others` among them."""
    version = reported_version(options)
    routes = {
        "/version": version_handler(version),
        "/metrics": metrics_handler(runtime.registry),
        "/metrics/slis": metrics_handler(health.indicators),
        **profiling.routes(),
        **others,
    }
    return {**routes, **debugging_routes(runtime.name, options, version, routes)}


def version_handler(version: str) -> Handler:
    """Return what answers `/version` for a server that reports this version."""
    build = build_info(version)
    major, minor = build["major"], build["minor"]
    versions = {
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
    }
    return fixed(Response(200, {"content-type": "application/json"}, msgspec.json.encode({**versions, **build})))
