"""The group apps, as far as controllers read it: the revisions of owners that have a history."""

import msgspec

from controller_manager.api.model import EMPTY_RAW, Object
from controller_manager.api.resource import Resource


class ControllerRevision(Object):
    """A state that its owner had, as JSON in `data`, which never changes; the newest has the highest `revision`."""

    data: msgspec.Raw = EMPTY_RAW
    revision: int = 0


CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision", True, ControllerRevision)
