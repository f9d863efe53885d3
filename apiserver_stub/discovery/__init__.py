"""What the server offers: `/api`, `/apis`, groups and versions, plain and aggregated."""

from apiserver_stub.discovery.pages import Discovery

__all__ = ["Discovery"]
