"""Discovery of what the server offers: `/api`, `/apis`, groups and versions, plain and aggregated."""

from apiserver_stub.apis.discovery.documents import GroupVersion
from apiserver_stub.apis.discovery.handler import AGGREGATED, Discovery, Extensions

__all__ = ["AGGREGATED", "Discovery", "Extensions", "GroupVersion"]
