"""Floor 5: what an author of controllers imports; everything here is public, everything else of the floor is not."""

from controller_manager.api.resource import Key, key_of
from controller_manager.cache import Change, Informer, Informers
from controller_manager.controller.spec import (
    Add,
    Context,
    For,
    Mapped,
    Owned,
    Reconciler,
    Rule,
    Source,
    Spec,
    Watch,
)
from controller_manager.work import GiveUp, Priority, Requeue

__all__ = [
    "Add",
    "Change",
    "Context",
    "For",
    "GiveUp",
    "Informer",
    "Informers",
    "Key",
    "Mapped",
    "Owned",
    "Priority",
    "Reconciler",
    "Requeue",
    "Rule",
    "Source",
    "Spec",
    "Watch",
    "key_of",
]
