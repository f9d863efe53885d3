"""The typed client of the API, with its transports, configuration, credentials, discovery and events."""

from controller_manager.common.transport.authenticated import InProcessTransport
from controller_manager.common.transport.config import ClientConfig
from controller_manager.common.transport.http_transport import HttpTransport
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
