"""Floor 3: the typed client of the API, with its transports, configuration, credentials, discovery and events."""

from controller_manager.client.client import Client
from controller_manager.client.codec import Listing, WatchEvent
from controller_manager.client.config import ClientConfig, ConfigError
from controller_manager.client.http import HttpTransport
from controller_manager.client.inprocess import InProcessTransport
from controller_manager.client.metrics import ClientMetrics
from controller_manager.client.throttle import Throttle
from controller_manager.client.transport import Transport, TransportError

__all__ = [
    "Client",
    "ClientConfig",
    "ClientMetrics",
    "ConfigError",
    "HttpTransport",
    "InProcessTransport",
    "Listing",
    "Throttle",
    "Transport",
    "TransportError",
    "WatchEvent",
]
