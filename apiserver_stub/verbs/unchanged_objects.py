"""Objects that a configuration left as they were: whoever applies the same again changes nothing either, as long as the
object is as it was. Those who keep a cluster as a repository says do little else.
"""

from collections import OrderedDict
from typing import NamedTuple

from apiserver_stub.request.api_request import APIRequest


class Unchanged(NamedTuple):
    """An object at a `revision`, the digest of what left it so, and the `warnings` about that."""

    revision: int
    sent: bytes
    warnings: tuple[str, ...]


_Place = tuple[int, str, str, str]


class UnchangedObjects:
    """What was last sent to each of the `most` objects that were applied last, and left them as they were."""

    def __init__(self, most: int = 4096) -> None:
        self.most = most
        self._known: OrderedDict[_Place, Unchanged] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, request: APIRequest) -> Unchanged | None:
        """Return what is known of the object of a request, whatever is sent now."""
        return self._known.get(_place(request))

    def note(self, request: APIRequest, found: Unchanged) -> None:
        """Note that a request left its object as it was."""
        place = _place(request)
        self._known[place] = found
        self._known.move_to_end(place)
        while len(self._known) > self.most:
            self._known.popitem(last=False)


def _place(request: APIRequest) -> _Place:
    return request.kind.serial, request.namespace, request.name, request.subresource_name
