"""Remember apply requests that changed nothing. The same request again is skipped while the object has the same
revision. GitOps tools send mostly such requests.
"""

from collections import OrderedDict
from typing import NamedTuple

from apiserver_stub.request.api_request import APIRequest


class Unchanged(NamedTuple):
    """An object at a `revision`, the digest of the request that left it unchanged, and the `warnings` of that
    request.
    """

    revision: int
    sent: bytes
    warnings: tuple[str, ...]


_Place = tuple[int, str, str, str]


class UnchangedObjects:
    """LRU cache of the last unchanged apply of each of `most` objects."""

    def __init__(self, most: int = 4096) -> None:
        self.most = most
        self._known: OrderedDict[_Place, Unchanged] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, request: APIRequest) -> Unchanged | None:
        """Return the last unchanged apply of the request's object; the caller compares the digest."""
        return self._known.get(_place(request))

    def note(self, request: APIRequest, found: Unchanged) -> None:
        """Record that a request left its object unchanged."""
        place = _place(request)
        self._known[place] = found
        self._known.move_to_end(place)
        while len(self._known) > self.most:
            self._known.popitem(last=False)


def _place(request: APIRequest) -> _Place:
    return request.kind.serial, request.namespace, request.name, request.subresource_name
