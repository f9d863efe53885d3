"""Discovery: `/api`, `/apis`, groups and versions, in the plain and the aggregated form."""

from apiserver_stub.apis.discovery.documents import GroupVersion
from apiserver_stub.apis.discovery.handler import AGGREGATED, Discovery, Extensions

__all__ = ["AGGREGATED", "Discovery", "Extensions", "GroupVersion"]
