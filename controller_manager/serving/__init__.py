"""Floor 3: serving HTTPS: certificates, sockets, health and who may see it; what is served lives elsewhere."""

from typing import TYPE_CHECKING, Any

from controller_manager.serving.access import Access, Identity
from controller_manager.serving.health import Health

if TYPE_CHECKING:
    from controller_manager.serving.http_server import CannotListen, HTTPServer

__all__ = ["Access", "CannotListen", "HTTPServer", "Health", "Identity"]


def __getattr__(name: str) -> Any:
    """The server is loaded when it is first asked for: its HTTP library takes half the start of a process."""
    if name not in ("CannotListen", "HTTPServer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from controller_manager.serving import http_server

    return getattr(http_server, name)
