"""The typed client of the API, with its transports, configuration, credentials, discovery and events."""

from typing import TYPE_CHECKING, Any

from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.config import ClientConfig
from controller_manager.common.transport.transport import ConfigError, Transport, TransportError
from controller_manager.framework.client.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Client
from controller_manager.framework.client.codec import Listing, Unreadable, UnreadableAnswer, WatchEvent, WriteResult
from controller_manager.framework.client.requests import (
    JSON,
    PROTOBUF,
    AdaptiveThrottle,
    ClientMetrics,
    RequestEncoder,
    Throttle,
)

if TYPE_CHECKING:
    from controller_manager.common.transport.http_transport import HttpTransport

__all__ = [
    "JSON",
    "MERGE_PATCH",
    "PROTOBUF",
    "STRATEGIC_MERGE_PATCH",
    "AdaptiveThrottle",
    "Client",
    "ClientConfig",
    "ClientMetrics",
    "ConfigError",
    "HttpTransport",
    "InProcessTransport",
    "Listing",
    "RequestEncoder",
    "Throttle",
    "Transport",
    "TransportError",
    "Unreadable",
    "UnreadableAnswer",
    "WatchEvent",
    "WriteResult",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of this module

    def __getattr__(name: str) -> Any:
        """Load `HttpTransport` on first use, because its HTTP library takes half of the start-up time of a process."""
        if name != "HttpTransport":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from controller_manager.common.transport.http_transport import HttpTransport

        return HttpTransport
