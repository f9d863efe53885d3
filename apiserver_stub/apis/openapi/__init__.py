"""OpenAPI documents built from the kinds: version 3 for each group version, and version 2 for the whole API."""

from apiserver_stub.apis.openapi.extension import GroupPaths, part_of
from apiserver_stub.apis.openapi.handler import Extensions, OpenApi
from apiserver_stub.apis.openapi.operation import Media

__all__ = ["Extensions", "GroupPaths", "Media", "OpenApi", "part_of"]
