"""A state that is being read, before it takes the place of the one that is known."""

from typing import Generic, TypeVar

from controller_manager.api.model import Object
from controller_manager.api.resource import Key, key_of
from controller_manager.cache.store import Store
from controller_manager.client import Listing, WatchEvent

T = TypeVar("T", bound=Object)


class Staged(Generic[T]):
    """The objects that were read, and why others can't be: each key is in one of the two at most."""

    def __init__(self) -> None:
        self.objects: Store[T] = Store()
        self.unreadable: dict[Key, str] = {}

    def page(self, page: Listing[T]) -> None:
        """Take in a page of a list."""
        for obj in page.items:
            self.objects.put(obj)
        self.unreadable.update((key_of(one.object), one.why) for one in page.unreadable)

    def event(self, event: WatchEvent[T]) -> None:
        """Take in an event of a streaming list."""
        key = key_of(event.object)
        if event.type == "DELETED" or event.unreadable:
            self.objects.drop(key)
        else:
            self.objects.put(event.object)
        if event.type != "DELETED" and event.unreadable:
            self.unreadable[key] = event.unreadable
        elif self.unreadable:
            self.unreadable.pop(key, None)
