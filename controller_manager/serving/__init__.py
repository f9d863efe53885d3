"""Floor 3: serving HTTPS: certificates, sockets, health and who may see it; what is served lives elsewhere."""

from controller_manager.serving.access import Access, Identity
from controller_manager.serving.health import Health
from controller_manager.serving.site import CannotListen, Site

__all__ = ["Access", "CannotListen", "Health", "Identity", "Site"]
