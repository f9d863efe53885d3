"""Request traces (OpenTelemetry) per TracingConfiguration. Without one, the library is not loaded."""

from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry

from apiserver_stub.common.spans import RequestSpan
from apiserver_stub.request.api_request import RequestContext
from controller_manager.common.base.log import Logger
from controller_manager.common.serving.authentication import User
from controller_manager.common.transport.dialer import Dialer

__all__ = ["RequestTracer", "request_tracer"]


class RequestTracer(Protocol):
    """Creates the spans of requests; `run` exports them until canceled, `close` exports the rest."""

    def begin(self, context: RequestContext, user: User) -> RequestSpan | None:
        """Return the span of an authenticated request; None if it is not traced."""

    async def run(self) -> None: ...

    async def close(self) -> None: ...


def request_tracer(
    config_file: str, registry: CollectorRegistry | None, log: Logger, dialer: Dialer | None = None
) -> RequestTracer | None:
    """Return a tracer configured by the file; None without a file. The collector is reached through `dialer`.

    Raises `ConfigFileError`, and `ConfigError` if the library is missing.
    """
    if not config_file:
        return None
    from apiserver_stub.request.tracing.configuration import read_tracing
    from apiserver_stub.request.tracing.tracer import Tracer

    return Tracer(read_tracing(Path(config_file)), registry, log, dialer)
