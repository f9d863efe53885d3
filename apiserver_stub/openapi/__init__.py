"""The description of the API: OpenAPI 3 for each version of a group, OpenAPI 2 for all of it, made from the kinds."""

from apiserver_stub.openapi.handler import OpenApi
from apiserver_stub.openapi.operation import Media

__all__ = ["Media", "OpenApi"]
