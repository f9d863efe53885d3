"""The description of the API: OpenAPI 3 for each version of a group, OpenAPI 2 for all of it, made from the kinds."""

from apiserver_stub.apis.openapi.extension import GroupPaths, part_of
from apiserver_stub.apis.openapi.handler import Extensions, OpenApi
from apiserver_stub.apis.openapi.operation import Media

__all__ = ["Extensions", "GroupPaths", "Media", "OpenApi", "part_of"]
