"""The description of the API: OpenAPI 3 for each version of a group, OpenAPI 2 for all of it, made from the kinds."""

from apiserver_stub.openapi.extension import Part, part_of
from apiserver_stub.openapi.handler import Extensions, OpenApi
from apiserver_stub.openapi.operation import Media

__all__ = ["Extensions", "Media", "OpenApi", "Part", "part_of"]
