"""Discovery of what the server offers: `/api`, `/apis`, groups and versions, plain and aggregated."""

from apiserver_stub.discovery.documents import GroupVersion
from apiserver_stub.discovery.handler import AGGREGATED, Discovery, Extensions

__all__ = ["AGGREGATED", "Discovery", "Extensions", "GroupVersion"]
