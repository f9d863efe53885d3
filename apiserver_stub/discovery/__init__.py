"""Discovery of what the server offers: `/api`, `/apis`, groups and versions, plain and aggregated."""

from apiserver_stub.discovery.handler import Discovery

__all__ = ["Discovery"]
