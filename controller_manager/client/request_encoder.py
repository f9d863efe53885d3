"""In which form objects are sent: in protobuf where that is wanted and says all of an object, as JSON otherwise.

Answers are asked for as JSON always, since that is what this client reads fastest by far.
"""

from typing import Any

from controller_manager.api import protobuf
from controller_manager.api.resource import Resource

JSON = "application/json"
PROTOBUF = protobuf.MEDIA_TYPE


class RequestEncoder:
    """Makes bodies of one media type, and remembers which resources the server does not take in it."""

    def __init__(self, media_type: str = JSON) -> None:
        self._media_type = media_type
        self._refused: set[Resource[Any]] = set()

    def make(self, resource: Resource[Any], data: bytes) -> tuple[bytes, str]:
        """A body and its media type, of the JSON of an object of that resource."""
        if self._media_type == PROTOBUF and resource not in self._refused:
            written = protobuf.body(resource.api_version, resource.kind, data)
            if written is not None:
                return written, PROTOBUF
        return data, JSON

    def refused(self, resource: Resource[Any]) -> None:
        """The server takes that resource as JSON only: a custom kind, or one it serves through another server."""
        self._refused.add(resource)
