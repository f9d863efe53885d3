"""Events, and object references, which events, endpoints and service accounts contain."""

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.resource import Resource


class ObjectReference(Model):
    """A reference to one object, complete."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Model):
    component: str = ""
    host: str = ""


class EventSeries(Model):
    count: int = 0
    last_observed_time: str | None = None


class Event(Object):
    """An event in its core form (API concepts, Event resource: with the deprecated fields)."""

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    action: str = ""
    count: int = 0
    source: EventSource = EventSource()
    series: EventSeries | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    related: ObjectReference | None = None


EVENTS = Resource("", "v1", "events", "Event", True, Event)


def reference_to(obj: Object) -> ObjectReference:
    """Return a reference to `obj` for events and endpoints."""
    meta = obj.metadata
    return ObjectReference(
        api_version=obj.api_version,
        kind=obj.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )
