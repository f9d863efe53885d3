"""How the API describes itself: OpenAPI 3 for each version of a group, OpenAPI 2 for all of it, made from the kinds."""

from apiserver_stub.openapi.media import Media
from apiserver_stub.openapi.pages import OpenApi

__all__ = ["Media", "OpenApi"]
